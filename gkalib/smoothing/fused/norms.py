"""Squared lengths of queries and keys, formed once so that no loop over blocks repeats them."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from gkalib.smoothing.fused.configs import config
from gkalib.smoothing.fused.launch import accumulator, block_width, launch, statistics_type
from gkalib.smoothing.fused.scores import head_start, load_block


@triton.jit
def squared_norms_kernel(
    tensor, squares, length, heads, blocks, batch_stride, head_stride, row_stride,
    WIDTH: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_WIDTH: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """One block of rows of one head."""
    program = tl.program_id(0)
    which = program // blocks
    start = program % blocks * BLOCK_ROWS
    own = tensor + head_start(which // heads, which % heads, batch_stride, head_stride)
    # [BLOCK_ROWS BLOCK_WIDTH]
    block = load_block(own, start, length, row_stride, WIDTH, BLOCK_ROWS, BLOCK_WIDTH, True).to(ACC)
    row = start + tl.arange(0, BLOCK_ROWS)
    tl.store(squares + which.to(tl.int64) * length + row, tl.sum(block * block, 1), mask=row < length)


def squared_norms(tensor: Tensor) -> Tensor:
    r"""The squared lengths $|x_i|^2$ ``[b h n]`` of the rows of ``[b h n d]``, as they are rounded."""
    batch, heads, length, width = tensor.shape
    squares = torch.empty(batch, heads, length, dtype=statistics_type(tensor), device=tensor.device)
    block = config("squared_norms_kernel", width=block_width(width), dtype=tensor.dtype, length=length)
    blocks = triton.cdiv(length, block.rows)
    launch(
        squared_norms_kernel,
        blocks * batch * heads,
        block,
        tensor=tensor,
        squares=squares,
        length=length,
        heads=heads,
        blocks=blocks,
        batch_stride=tensor.stride(0),
        head_stride=tensor.stride(1),
        row_stride=tensor.stride(2),
        WIDTH=width,
        BLOCK_WIDTH=block_width(width),
        ACC=accumulator(tensor),
    )
    return squares
