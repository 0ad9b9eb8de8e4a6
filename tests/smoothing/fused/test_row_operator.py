"""The row operator's fused programs against the library's operator, which has all scores in memory."""

import pytest
import torch
from torch import Tensor

from gkalib.normalizers import Fourier, RowOperator
from gkalib.smoothing.fused import row_operator
from gkalib.smoothing.fused.configs import Config, forced
from gkalib.smoothing.fused.launch import LAUNCHES
from gkalib.smoothing.fused.row_operator import row_features, row_features_backward
from tests.tolerance import agree

F64 = torch.float64
SMALL, UNEVEN, TALL = Config(16, 32), Config(32, 16), Config(64, 32)

# batch, heads, queries, keys, width, harmonics, rank, blocks
CASES = {
    "one token": (1, 1, 1, 1, 16, 1, 1, SMALL),
    "a batch": (5, 2, 17, 17, 16, 3, 12, UNEVEN),
    "ragged": (1, 2, 63, 63, 40, 3, 12, TALL),
    "more keys": (2, 1, 17, 63, 24, 2, 16, SMALL),
    "more queries": (1, 1, 100, 31, 16, 1, 5, TALL),
    "whole blocks": (1, 2, 64, 64, 32, 3, 16, UNEVEN),
    "eight harmonics": (1, 1, 33, 40, 16, 8, 3, UNEVEN),
    "a high rank": (2, 1, 20, 45, 33, 2, 40, SMALL),
}


def _inputs(case: str, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, ...]:
    """Gradient of the features, query, key, coefficients and scale, the scores up to about 30."""
    batch, heads, queries, keys, width, harmonics, rank, _ = CASES[case]
    # Heads lie inside tokens, and the keys are every other row of something larger.
    query = torch.randn(batch, queries, heads, width, dtype=F64).transpose(1, 2)
    key = torch.randn(batch, keys, heads, 2 * width, dtype=F64)[..., ::2].transpose(1, 2)
    coefficients = torch.randn(heads, 2 * harmonics, keys, rank, dtype=F64) / (2 * harmonics * keys) ** 0.5
    scale = 30 / (query @ key.mT).abs().amax((0, 2, 3)) / torch.arange(1, heads + 1)
    grad = torch.randn(batch, heads, queries, rank, dtype=F64)
    own = [tensor.to(device, dtype) for tensor in (grad, query, key, coefficients)]
    return *own, scale.to(device, F64 if dtype == F64 else torch.float32)


def _exact(query: Tensor, key: Tensor, coefficients: Tensor, scale: Tensor) -> Tensor:
    """The library's operator on a matrix of scores."""
    heads, features, keys, rank = coefficients.shape
    operator = RowOperator(
        heads, keys, basis=Fourier(features // 2), rank=rank, unit_scales=False, device=query.device
    )
    del operator.first.coefficients
    operator.first.coefficients = coefficients.permute(0, 3, 2, 1)
    return operator.features(scale[:, None, None].to(query.dtype) * (query @ key.mT))


def _with_gradients(grad: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    """The same with autograd's gradients of query, key and coefficients."""
    leaves = [tensor.detach().requires_grad_() for tensor in inputs[:3]]
    features = _exact(*leaves, inputs[3])
    return features.detach(), *torch.autograd.grad(features, leaves, grad.to(features))


def _fused(grad: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    return row_features(*inputs), *row_features_backward(grad, *inputs)


@pytest.mark.parametrize("case", CASES)
def test_features_and_gradients_are_those_of_the_operator(case):
    inputs = _inputs(case, F64, torch.device("cpu"))
    before = LAUNCHES.copy()
    with forced(CASES[case][-1]):
        results = _fused(*inputs)
    for name, have, want in zip(("H", "dq", "dk", "dc"), results, _with_gradients(*inputs), strict=True):
        assert have.shape == want.shape
        error = ((have - want).abs().max() / want.abs().max()).item()
        assert error <= 1e-12, f"{name}: {error:.1e}"
    # What a key's sums take beyond the registers is a second run.
    runs = {"forward": 1, "query": 1, "key": 2 if case in ("eight harmonics", "a high rank") else 1}
    assert LAUNCHES - before == {f"row_operator_{part}_kernel": count for part, count in runs.items()}


ON_A_CARD = pytest.mark.skipif(not torch.cuda.is_available(), reason="the interpreter computes no bfloat16")


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, pytest.param(torch.bfloat16, marks=ON_A_CARD)]
)
def test_other_types(dtype, device):
    inputs = _inputs("a batch", dtype, device)
    exact = _with_gradients(*(tensor.to("cpu", F64) for tensor in inputs))
    # What torch makes of float16 inputs when scores and features are float16 too.
    same = _with_gradients(*inputs)
    with forced(Config(64, 32)):
        results = _fused(*inputs)
    assert results[0].dtype == torch.float32
    for have, want, plain in zip(results, exact, (same[0].float(), *same[1:]), strict=True):
        agree(have.cpu(), want, plain.cpu())


def test_coefficients_may_be_of_another_type():
    grad, query, key, coefficients, scale = _inputs("ragged", torch.float32, torch.device("cpu"))
    wide = coefficients.double()
    with forced(TALL):
        assert torch.equal(
            row_features(query, key, wide, scale), row_features(query, key, coefficients, scale)
        )
        assert row_features_backward(grad, query, key, wide, scale)[2].dtype == F64


def test_sums_over_the_batch_are_cut_into_parts(monkeypatch):
    inputs = _inputs("a batch", F64, torch.device("cpu"))
    want = _with_gradients(*inputs)[1:]
    for programs in (1, 4, 6, 512):  # one part, a last one with fewer sequences, as many as sequences
        monkeypatch.setattr(row_operator, "PROGRAMS", programs)
        with forced(Config(32, 32)):
            for have, exact in zip(row_features_backward(*inputs), want, strict=True):
                torch.testing.assert_close(have, exact, rtol=1e-12, atol=1e-13)


def test_gradients_lie_as_a_projection_reads_them():
    inputs = _inputs("a batch", F64, torch.device("cpu"))
    with forced(Config(32, 32)):
        of_query, of_key, _ = row_features_backward(*inputs)
    assert of_query.transpose(1, 2).is_contiguous()
    assert of_key.transpose(1, 2).is_contiguous()
