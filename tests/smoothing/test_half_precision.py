"""The key's bias in half precision: two columns reach the rounding floor, one column does not."""

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
