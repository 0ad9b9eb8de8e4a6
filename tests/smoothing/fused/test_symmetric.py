"""Gaussian attention of one tensor to itself, forward and backward, against autograd of its formula."""

import pytest
import torch
from torch import Tensor

from gkalib.smoothing.fused import forward
from gkalib.smoothing.fused.configs import Config, edge_columns, forced
from gkalib.smoothing.fused.launch import LAUNCHES
from gkalib.smoothing.fused.symmetric import gka_backward
from gkalib.smoothing.spans import Spans
from tests.smoothing.fused.formula import of_itself, seen
from tests.tolerance import agree, oracle

WHOLE = Spans(400, 400)
FLOAT64 = pytest.mark.skipif(torch.cuda.is_available(), reason="float64 is the interpreter's oracle")


def packed(length: int, *, right: int = 400, window: int = 400) -> Spans:
    """Two sequences of packed documents, cut at different tokens; ``right`` 0 is causal."""
    at = torch.arange(length)
    starts = torch.stack([at // 7 * 7, torch.where(at < length // 3, 0, length // 3)])
    stops = torch.stack([at // 7 * 7 + 7, torch.where(at < length // 3, length // 3, length)])
    first = starts.maximum(at - window)
    last = stops.minimum(at + 1 + min(right, window)).clamp(max=length)
    return Spans(window, min(right, window), first.int(), last.int())


MASKS = {
    "whole": lambda n: WHOLE,
    "causal": lambda n: Spans(2 * n, 0),
    "window": lambda n: Spans(9, 9),
    "causal window": lambda n: Spans(20, 0),
    "lopsided window": lambda n: Spans(5, 11),
    "documents": packed,
    "causal documents": lambda n: packed(n, right=0),
    "causal windows of documents": lambda n: packed(n, right=0, window=4),
}
LENGTHS = (1, 17, 63, 70)


def formula(x: Tensor, sigma: Tensor, spans: Spans, eps: float) -> tuple[Tensor, Tensor]:
    """O and t with every difference x_i − x_j at hand, in the type of σ."""
    wide = x.to(sigma.dtype)
    apart = (wide[:, :, :, None] - wide[:, :, None]).square().sum(-1)
    weights = torch.exp(-apart / (2 * sigma[:, None, None] ** 2)) * seen(
        spans, x.shape[2], x.shape[2], x.device
    )
    total = weights.sum(-1) + eps
    return (weights @ wide / total[..., None]).to(x.dtype), total


def tokens(length: int, width: int, *, batch: int = 2, device: torch.device | str = "cpu") -> Tensor:
    """x in float64, two heads of each sequence, token-major in memory."""
    return torch.randn(batch, length, 2, width, dtype=torch.float64).to(device).transpose(1, 2)


def bandwidths(width: int, device: torch.device | str = "cpu") -> Tensor:
    """σ of two heads."""
    return (width / torch.tensor([1.0, 3.0], dtype=torch.float64).to(device)).sqrt()


def assert_same(
    x: Tensor, spans: Spans, *, eps: float = 0.0, grad: Tensor | None = None, sigma: Tensor | None = None
) -> None:
    """O, t, dx and dL/dσ of the fused operations are autograd's to 1e-12 of the largest."""
    given = bandwidths(x.shape[-1]) if sigma is None else sigma
    sigma = given.expand(2).clone().requires_grad_()
    leaf = x.detach().requires_grad_()
    out, total = formula(leaf, sigma, spans, eps)
    grad = torch.randn_like(out) if grad is None else grad
    exact = torch.autograd.grad(out, (leaf, sigma), grad)
    actual, own_total = of_itself(x, given, spans, eps)
    grad_x, share = gka_backward(grad, x, actual, own_total, given, spans)
    oracle(actual, out.detach())
    oracle(own_total, total.detach())
    oracle(grad_x, exact[0])
    # Each row's share is the difference of two inner products, of whose size its rounding is.
    error = (share.sum((0, 2)) - exact[1]).abs()
    size = ((out * grad).abs().sum((0, 2, 3)) / sigma).detach()
    assert (error <= 1e-12 * size).all(), f"errors {error} of sums of {size}"


@FLOAT64
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("mask", MASKS)
def test_values_and_gradients_are_autograds(mask: str, length: int):
    turn = list(MASKS).index(mask) + LENGTHS.index(length)
    block = (Config(32, 16), Config(64, 32), Config(32, 64), Config(16, 32))[(turn + length // 70) % 4]
    spans = MASKS[mask](length)
    with forced(block):
        x = tokens(length, 16, batch=1 if spans.first is None else len(spans.first))
        assert_same(x, spans, eps=(0.0, 0.3)[turn % 2])


@FLOAT64
@pytest.mark.parametrize(("length", "columns"), [(67, 64), (97, 32), (24, 16), (5, 64), (64, 64)])
def test_blocks_at_the_edge_are_narrower_where_few_columns_are_left(length: int, columns: int):
    rest = length % columns
    assert edge_columns(length, columns) == (16 if 0 < rest <= columns // 2 else columns)
    with forced({"smooth_forward": Config(32, columns)}):
        assert_same(tokens(length, 16, batch=1), WHOLE, eps=0.3)


@FLOAT64
@pytest.mark.parametrize("width", [5, 24, 33])
def test_odd_widths(width: int):
    with forced(Config(32, 32)):
        assert_same(tokens(40, width, batch=1), Spans(80, 0))


@FLOAT64
def test_one_bandwidth_for_all_heads():
    """Read from one place, with a step of 0; or every other number of a longer vector."""
    with forced(Config(32, 32)):
        assert_same(tokens(40, 16), WHOLE, sigma=bandwidths(16)[:1])
        assert_same(tokens(20, 16), Spans(40, 0), sigma=bandwidths(16).repeat_interleave(2)[::2])


@FLOAT64
@pytest.mark.parametrize("mask", ["whole", "causal"])
def test_norms_of_long_sequences_come_from_a_program(mask: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(forward, "SHORT", 16)
    LAUNCHES.clear()
    with forced(Config(32, 16)):
        assert_same(tokens(50, 16, batch=1), MASKS[mask](50))
    assert LAUNCHES["squared_norms_kernel"] == 1


@FLOAT64
def test_every_pass_is_two_programs_at_most():
    LAUNCHES.clear()
    assert_same(tokens(20, 16), Spans(40, 0))
    assert LAUNCHES == {"smooth_forward_kernel": 1, "gka_prepare_kernel": 1, "gka_backward_kernel": 1}


LAYOUTS = {
    "features first": lambda x: x.mT.contiguous().mT,
    "every other feature": lambda x: x.repeat_interleave(2, -1)[..., ::2],
    "every other token": lambda x: x.repeat_interleave(2, 2)[:, :, ::2],
    "one sequence for all": lambda x: x[:1].expand_as(x),
}


@FLOAT64
@pytest.mark.parametrize("layout", LAYOUTS)
def test_tensors_of_any_layout(layout: str):
    x = LAYOUTS[layout](tokens(20, 16))
    grad = LAYOUTS[layout](torch.randn(2, 2, 20, 16, dtype=torch.float64))
    assert_same(x, Spans(40, 0), grad=grad)
    assert_same(x, WHOLE, grad=torch.ones((), dtype=torch.float64).expand_as(x))


@FLOAT64
def test_memory_around_a_tensor_is_not_read():
    """Blocks reach past the last token and the last feature, where other numbers may lie."""
    around = torch.full((2, 2, 64, 32), torch.nan, dtype=torch.float64)
    around[:, :, 3:40, :20] = tokens(37, 20)
    assert_same(around[:, :, 3:40, :20], Spans(80, 0))


@FLOAT64
def test_extreme_bandwidths_stay_finite():
    """σ → 0: every token averages itself alone; σ → ∞: all tokens alike."""
    x = tokens(20, 16)
    for sigma, expected in ((1e-3, x), (1e6, x.mean(2, keepdim=True).expand_as(x))):
        out, total = of_itself(x, torch.full((2,), sigma, dtype=torch.float64), WHOLE)
        assert (out - expected).abs().max() < 1e-9
        grad, _ = gka_backward(torch.ones_like(x), x, out, total, bandwidths(16), WHOLE)
        assert grad.isfinite().all()


@FLOAT64
def test_nothing_in_nothing_out():
    x = torch.empty(2, 2, 0, 16, dtype=torch.float64)
    out, total = of_itself(x, bandwidths(16), WHOLE)
    grad, share = gka_backward(x, x, out, total, bandwidths(16), WHOLE)
    assert out.shape == grad.shape == x.shape and total.shape == share.shape == (2, 2, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("mask", ["whole", "causal", "documents"])
def test_types_of_the_card(mask: str, dtype: torch.dtype, device: torch.device):
    if dtype == torch.bfloat16 and device.type == "cpu":
        pytest.skip("the interpreter computes nonsense in bfloat16")
    spans, width = MASKS[mask](63), 64
    if spans.first is not None and spans.last is not None:
        spans = Spans(spans.left, spans.right, spans.first.to(device), spans.last.to(device))
    x, grad = (tokens(63, width, device=device).to(dtype) for _ in range(2))
    sigma = bandwidths(width, device)

    def reference(kind: torch.dtype) -> tuple[Tensor, Tensor]:
        leaf = x.to(kind).detach().requires_grad_()
        wide = torch.float64 if kind == torch.float64 else torch.float32
        out = formula(leaf, sigma.to(wide), spans, 0.0)[0]
        return out.detach(), torch.autograd.grad(out, leaf, grad.to(kind))[0]

    out, total = of_itself(x, sigma.float(), spans)
    assert total.dtype == torch.float32
    grad_x, _ = gka_backward(grad, x, out, total, sigma.float(), spans)
    for actual, exact, same in zip((out, grad_x), reference(torch.float64), reference(dtype), strict=True):
        agree(actual, exact, same)
