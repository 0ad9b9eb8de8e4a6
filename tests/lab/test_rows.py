"""Rows are loaded and stored in any order, and stored in the tensor's own type."""

import pytest
import torch
import triton
import triton.language as tl

from chapters.lab.rows import load_rows, store_rows
from gkalib.smoothing.fused.launch import interpreting

pytestmark = pytest.mark.skipif(not interpreting(), reason="Triton's interpreter is off")


@triton.jit
def reverse_kernel(x, out, n, B: tl.constexpr, D: tl.constexpr):
    row = tl.arange(0, B)
    store_rows(out, n - 1 - row, 2 * load_rows(x, row, D), D)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_rows_go_where_they_are_sent(dtype):
    x, out = torch.randn(16, 8, dtype=torch.float64), torch.zeros(20, 8, dtype=dtype)
    reverse_kernel[(1,)](x, out, 20, B=16, D=8)
    assert torch.equal(out[4:], (2 * x).flip(0).to(dtype)) and not out[:4].any()
