"""Half precision, by itself and under autocast: what may be rounded and what may not."""

import pytest
import torch
from torch._subclasses import FakeTensorMode

import gkalib
from gkalib import kernels, masks
from gkalib.smoothing import Reference, api, make_problem
from gkalib.smoothing.methods import padded
from tests.cases import MASKS
from tests.tolerance import agree


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_two_columns_are_needed_and_enough(dtype, monkeypatch):
    query, key, value = (torch.randn(1, 4, 64, 64).to(dtype) for _ in range(3))
    kernel = kernels.Gaussian(1.0)
    exact = gkalib.smooth(query.double(), key.double(), value.double(), kernel, method="reference")

    def result() -> torch.Tensor:
        return gkalib.smooth(query, key, value, kernel, method="padded")

    def error() -> float:
        return (result().double() - exact).abs().max().item()

    agree(result(), exact, gkalib.smooth(query, key, value, kernel, method="reference"))
    with_two = error()
    monkeypatch.setattr(padded, "_columns", lambda column, dtype: ([1.0], [column.to(dtype)]))
    assert error() > 5 * with_two


@pytest.mark.parametrize("sigma", [0.7, torch.full((4,), 0.7), torch.tensor([0.55, 0.7, 0.9, 1.1])])
@pytest.mark.parametrize("mask", ["none", "causal", "window", "padding", "document", "pairs", "heads"])
def test_no_scale_is_rounded_with_the_query(sigma, mask):
    query, key, value = (torch.randn(2, 4, 64, 64).to(torch.bfloat16) for _ in range(3))
    kernel = kernels.Gaussian(sigma)  # no 1/σ² is a power of two
    rule = torch.rand(4, 64, 64) > 0.3 if mask == "heads" else MASKS[mask](2, 64, 64)
    slots = {"mask": rule}
    exact = gkalib.smooth(query.double(), key.double(), value.double(), kernel, method="reference", **slots)

    def error(method: str) -> float:
        return (
            (gkalib.smooth(query, key, value, kernel, method=method, **slots).double() - exact).norm().item()
        )

    assert error("padded") < 1.5 * error("reference")


def test_inside_a_graph_a_scale_of_each_head_is_rounded_with_the_query(monkeypatch):
    query, key, value = (torch.randn(1, 4, 64, 64).to(torch.bfloat16) for _ in range(3))
    kernel = kernels.Gaussian(torch.tensor([0.55, 0.7, 0.9, 1.1]))
    exact = gkalib.smooth(query.double(), key.double(), value.double(), kernel, method="reference")

    def error() -> float:
        out = gkalib.smooth(query, key, value, kernel, method="padded")
        return (out.double() - exact).norm().item()

    alone = error()
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert error() > 2 * alone


def test_bandwidths_of_heads_get_their_gradient_in_half_precision():
    inputs = [torch.randn(2, 4, 32, 16).to(torch.bfloat16) for _ in range(3)]
    weight = torch.randn(2, 4, 32, 16)

    def gradients(method: str, dtype: torch.dtype) -> list[torch.Tensor]:
        sigma = torch.tensor([1.1, 1.5, 2.3, 3.0], requires_grad=True)
        leaves = [one.to(dtype).requires_grad_() for one in inputs]
        out = gkalib.smooth(*leaves, kernels.Gaussian(sigma), mask=masks.Causal(), method=method)
        return [one.double() for one in torch.autograd.grad((out * weight).sum(), (*leaves, sigma))]

    exact = gradients("reference", torch.float64)
    # σ's gradient is a sum of the query's gradients, which are rounded one by one.
    for have, want, tolerance in zip(
        gradients("padded", torch.bfloat16), exact, (0.02, 0.02, 0.02, 0.1), strict=True
    ):
        assert (have - want).norm() < tolerance * want.norm()


def _mixed():
    """Query and key as a norm or a rotation leaves them under autocast, and a value in half precision."""
    return torch.randn(2, 4, 17, 64), torch.randn(2, 2, 17, 64), torch.randn(2, 2, 17, 64).bfloat16()


SIGMAS = torch.tensor([0.7, 1.3, 2.0, 3.1])


@pytest.mark.parametrize("method", ["auto", "padded", "dense", "reference", "linear"])
@pytest.mark.parametrize("kernel", [kernels.ExpDot(), kernels.Gaussian(SIGMAS), kernels.Elu()])
def test_autocast_casts_what_is_smoothed_and_nothing_else(kernel, method):
    inputs, bias = _mixed(), None if method in ("auto", "linear") else torch.randn(17)
    half = [one.bfloat16() for one in inputs]
    if api.METHODS.get(method, Reference()).refuses(make_problem(*half, kernel, bias=bias)):
        return
    outside = gkalib.smooth(*half, kernel, bias=bias, method=method)
    with torch.autocast("cpu", torch.bfloat16):
        inside = gkalib.smooth(*inputs, kernel, bias=bias, method=method)
        weights = gkalib.attention_weights(*inputs[:2], kernel, bias=bias)
    assert inside.dtype == torch.bfloat16 and torch.equal(inside, outside)
    assert torch.equal(weights, gkalib.attention_weights(*half[:2], kernel, bias=bias))


def test_autocast_leaves_float64_and_one_tensor_stays_one():
    x = torch.randn(1, 2, 8, 4)
    with torch.autocast("cpu", torch.bfloat16):
        for given in ((x, None, None), (x, x, x), (x, None, x)):
            problem = make_problem(*given, kernels.Gaussian(1.0))
            assert problem.one_tensor and problem.query.dtype == torch.bfloat16
        assert not make_problem(x, x, x.clone(), kernels.Gaussian(1.0)).one_tensor
        assert gkalib.smooth(x.double(), kernel=kernels.Gaussian(1.0)).dtype == torch.float64
        with pytest.raises(ValueError, match=r"value is torch\.float64"):
            gkalib.smooth(x, x, x.double())


def test_autocast_of_a_gpu_casts_its_tensors_and_no_others():
    """By dispatch alone: PyTorch's switch is turned by hand, and the tensors have no memory."""
    before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", torch.float16)
    try:
        with FakeTensorMode():
            query, key, value = (one.to("cuda") for one in _mixed())
            for kernel in (kernels.ExpDot(), kernels.Gaussian(torch.ones(4, device="cuda"))):
                out = gkalib.smooth(query, key, value, kernel, method="dense")
                assert out.dtype == torch.float16 and out.device.type == "cuda"
        x = torch.randn(1, 1, 3, 4)
        assert gkalib.smooth(x).dtype == gkalib.smooth(x.to("meta"), method="dense").dtype == torch.float32
    finally:
        torch.set_autocast_enabled("cuda", before[0])
        torch.set_autocast_dtype("cuda", before[1])
