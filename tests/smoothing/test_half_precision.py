"""Half precision inside PyTorch's attention: what may be rounded and what may not."""

import pytest
import torch

import gkalib
from gkalib import kernels, masks
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
    monkeypatch.setattr(padded, "_two_columns", lambda bias, dtype: [bias.to(dtype)])
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
