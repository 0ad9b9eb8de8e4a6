"""The fused operations as PyTorch operators: registration, compilation, counts, autocast, derivatives."""

import subprocess
import sys

import pytest
import torch
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import gkalib
from gkalib import kernels, normalizers
from gkalib.smoothing.fused import op
from gkalib.smoothing.fused.launch import LAUNCHES
from tests.smoothing.fused.compiled import CASES
from tests.tolerance import equal


@pytest.fixture(autouse=True)
def _on_the_device(device):
    """Tensors are made on the card where there is one."""
    with device:
        yield


def _x(*shape, dtype=torch.float32, grad=True):
    return torch.randn(shape, dtype=dtype).requires_grad_(grad)


def of_one(x: torch.Tensor, sigma: torch.Tensor) -> tuple:
    """What ``smooth`` is given of one tensor, up to the mask."""
    return x, None, None, None, None, sigma, None


def _calls() -> dict[str, tuple]:
    """An operator and arguments for it, by name."""
    x, key, value = _x(1, 2, 17, 8), _x(1, 2, 20, 8), _x(1, 2, 20, 5)
    scale, norm = torch.tensor([0.3, 0.5]).requires_grad_(), torch.tensor([0.2, 0.1]).requires_grad_()
    table, sigma = _x(2, 17 + 20 - 1), torch.full((1,), 1.5).requires_grad_()
    first, last = torch.zeros(1, 17, dtype=torch.int32), torch.full((1, 17), 9, dtype=torch.int32)
    grad_out, total = _x(1, 2, 17, 8, grad=False), torch.ones(1, 2, 17)
    plain, plain_scale = x.detach(), scale.detach()
    coefficients, bank = _x(2, 6, 20, 4), [_x(2, 3) for _ in range(4)]
    return {
        "gka": (op.smooth, (*of_one(x, scale), 0, 0, None, None, True, 0.0)),
        "gka-given": (
            op.smooth,
            (*of_one(x, scale), 40, 40, first + torch.arange(17, dtype=torch.int32), last + 8, True, 0.1),
        ),
        "gka_backward": (
            op.gka_backward,
            (grad_out, plain, plain, total, plain_scale, 40, 40, None, None),
        ),
        "smooth": (op.smooth, (x, key, value, scale, norm, None, table, 40, 0, None, None, True, 0.0)),
        "smooth-plain": (
            op.smooth,
            (x, key, value, scale, None, None, None, 40, 40, first, last, False, 0.0),
        ),
        "smooth-sigma": (
            op.smooth,
            (x, key, value, None, None, sigma, None, 40, 40, None, None, True, 0.0),
        ),
        "smooth_backward": (
            op.smooth_backward,
            (
                _x(1, 2, 17, 5, grad=False),
                plain,
                key.detach(),
                value.detach(),
                _x(1, 2, 17, 5, grad=False),
                total,
                plain_scale,
                norm.detach(),
                None,
                table.detach(),
                40,
                40,
                None,
                None,
                True,
                True,
                True,
            ),
        ),
        "bank_table": (op.bank_table, (*bank, 17, 20, None)),
        "bank_table at lags": (op.bank_table, (*(one.detach() for one in bank), 1, 12, torch.arange(-3, 9))),
        "bank_gradient": (op.bank_gradient, (table.detach(), *(one.detach() for one in bank), 17)),
        "row_features": (op.row_features, (x, key, coefficients, scale)),
        "row_features_backward": (
            op.row_features_backward,
            (_x(1, 2, 17, 4, grad=False), plain, key.detach(), coefficients.detach(), plain_scale),
        ),
        "decode": (
            op.decode,
            (
                _x(1, 2, 1, 8, grad=False),
                key.detach(),
                None,
                plain_scale,
                norm.detach(),
                None,
                None,
                None,
                None,
                True,
                0.0,
            ),
        ),
    }


@pytest.mark.parametrize("name", _calls())
def test_opcheck(name):
    operator, arguments = _calls()[name]
    checks = ["test_schema", "test_faketensor"]
    if name in ("gka", "smooth", "smooth-sigma", "bank_table", "row_features"):
        checks += ["test_autograd_registration", "test_aot_dispatch_static"]
    torch.library.opcheck(operator, arguments, test_utils=checks)


@pytest.fixture(scope="module")
def outcomes() -> list[str]:
    """What each compiled case came to, from one process that runs them all."""
    run = [sys.executable, "-m", "tests.smoothing.fused.compiled"]
    return subprocess.run(run, capture_output=True, text=True, check=True, timeout=280).stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_one_graph_gives_the_same(case, outcomes):
    assert next(line for line in outcomes if line.startswith(case + " ")) == f"{case} ok"


def _flops(function) -> int:
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


@pytest.mark.parametrize("one_tensor", [True, False])
def test_flops_are_those_of_the_matrix_products(one_tensor):
    """Forward as `dense` counts it, and 2.5 times as many for the gradient."""
    x, key, value = _x(1, 2, 17, 16), _x(1, 2, 17, 16), _x(1, 2, 17, 16)
    inputs = (x, x, x) if one_tensor else (x, key, value)
    kernel = kernels.Gaussian(1.0)
    forward = _flops(lambda: gkalib.smooth(*inputs, kernel, method="fused"))
    assert forward == _flops(lambda: gkalib.smooth(*inputs, kernel, method="dense"))
    assert forward == 2 * 2 * 17 * 17 * (16 + 16)
    both = _flops(lambda: gkalib.smooth(*inputs, kernel, method="fused").sum().backward())
    assert both == 3.5 * forward


def test_flops_of_the_row_operator_and_of_decoding():
    operator, inputs = normalizers.RowOperator(2, 17, rank=4), [_x(1, 2, 17, 16) for _ in range(3)]
    fused = _flops(lambda: gkalib.smooth(*inputs, kernels.ExpDot(), normalizer=operator, method="fused"))
    scores_and_features, mixing = 17 * 17 * (16 + 6 * 4), 2 * 17 * 4 * 16
    assert fused == 2 * 2 * (scores_and_features + mixing)
    query, key = _x(1, 2, 1, 16, grad=False), _x(1, 2, 17, 16, grad=False)
    assert _flops(lambda: gkalib.smooth(query, key, key, kernels.ExpDot(), method="fused")) == 4 * 2 * 17 * 16


def test_autocast_takes_its_type(device):
    x = _x(1, 2, 17, 16)
    kernel = kernels.Gaussian(1.5)
    with torch.autocast(device.type, torch.float16):
        out = gkalib.smooth(x, x, x, kernel, method="fused")
    assert out.dtype == torch.float16
    half = x.detach().half()
    assert torch.equal(out, gkalib.smooth(half, half, half, kernel, method="fused"))
    (grad,) = torch.autograd.grad(out.sum(), x)
    assert grad.dtype == torch.float32 and grad.isfinite().all()


def test_activation_checkpointing_runs_the_forward_twice_and_changes_nothing():
    x = _x(1, 2, 17, 8)

    def smoothed(x):
        return gkalib.smooth(x, x, x, kernels.Gaussian(1.5), method="fused").square()

    (plain,) = torch.autograd.grad(smoothed(x).sum(), x)
    before = LAUNCHES["smooth_forward_kernel"]
    (again,) = torch.autograd.grad(checkpoint(smoothed, x, use_reentrant=False).sum(), x)
    assert LAUNCHES["smooth_forward_kernel"] == before + 2
    assert torch.equal(plain, again)


@pytest.mark.parametrize("kind", ["one tensor", "three tensors", "rows"])
def test_a_second_derivative_is_refused(kind):
    x, key = _x(1, 2, 17, 8), _x(1, 2, 17, 8)
    inputs = (x, x, x) if kind == "one tensor" else (x, key, key)
    normalizer = normalizers.RowOperator(2, 17, rank=4) if kind == "rows" else normalizers.RowSum()
    kernel = kernels.ExpDot() if kind == "rows" else kernels.Gaussian(1.0)
    out = gkalib.smooth(*inputs, kernel, normalizer=normalizer, method="fused")
    (grad,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"^smooth: the fused operations have no second derivative"):
        torch.autograd.grad(grad.sum(), x)


def test_nothing_is_computed_for_an_output_without_a_gradient():
    x = _x(1, 2, 17, 8)
    _, total = op.smooth(*of_one(x, torch.ones(2)), 40, 40, None, None, True, 0.0)
    before = dict(LAUNCHES)
    (grad,) = torch.autograd.grad(total.sum() * 0 + x.sum(), x)
    assert dict(LAUNCHES) == before
    equal(grad.double(), torch.ones_like(grad, dtype=torch.float64))
