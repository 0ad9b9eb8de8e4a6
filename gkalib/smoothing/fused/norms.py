"""Squared lengths of queries and keys, formed once so that no loop over blocks repeats them."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from gkalib.smoothing.fused.configs import config
from gkalib.smoothing.fused.launch import heads_of, launch, statistics_type
from gkalib.smoothing.fused.scores import block_width, head_of, load_block, place, sum_type


@triton.jit
def squared_norms_kernel(
    tensor, squares, length, pitch, heads, WIDTH: tl.constexpr, BLOCK_ROWS: tl.constexpr
):  # fmt: skip
    """One block of rows of one head, zero past its length."""
    batch, head, sequence, start = place(heads, pitch, BLOCK_ROWS)
    # [BLOCK_ROWS block_width]
    block = load_block(head_of(tensor, batch, head), start, length, BLOCK_ROWS, WIDTH, True)
    wide = block.to(sum_type(block.dtype))
    row = start + tl.arange(0, BLOCK_ROWS)
    tl.store(squares + sequence * pitch + row, tl.sum(wide * wide, 1), mask=row < pitch)


def squared_norms(tensor: Tensor, whole: int = 1) -> Tensor:
    r"""The squared lengths $|x_i|^2$ ``[b h n]`` of the rows of ``[b h n d]``, as they are rounded.

    Zeros follow up to a multiple of ``whole``, so that blocks which end past n may be read without a mask.
    """
    batch, heads, length, width = tensor.shape
    pitch = triton.cdiv(length, whole) * whole
    squares = torch.empty(batch, heads, pitch, dtype=statistics_type(tensor), device=tensor.device)
    block = config("squared_norms_kernel", width=block_width(width), dtype=tensor.dtype, length=length)
    launch(
        squared_norms_kernel,
        triton.cdiv(pitch, block.rows) * batch * heads,
        block,
        tensor=heads_of(tensor),
        squares=squares,
        length=length,
        pitch=pitch,
        heads=heads,
        WIDTH=width,
    )
    return squares
