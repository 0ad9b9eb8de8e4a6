"""Half precision inside PyTorch's attention: what may be rounded and what may not."""

import pytest
import torch

import gkalib
from gkalib import kernels
from gkalib.smoothing import padded
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


def test_a_scale_that_is_one_number_is_not_rounded_with_the_query():
    query, key, value = (torch.randn(1, 4, 64, 64).to(torch.bfloat16) for _ in range(3))
    sigma = 0.7  # 1/σ² is no power of two
    exact = gkalib.smooth(
        query.double(), key.double(), value.double(), kernels.Gaussian(sigma), method="reference"
    )

    def error(sigma: float | torch.Tensor) -> float:
        out = gkalib.smooth(query, key, value, kernels.Gaussian(sigma), method="padded")
        return (out.double() - exact).norm().item()

    assert error(torch.full((4,), sigma)) > 2 * error(sigma)
