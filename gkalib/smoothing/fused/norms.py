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
    tensor, squares, length, pitch, heads, blocks, strides, WIDTH: tl.constexpr, BLOCK_ROWS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """One block of rows of one head, zero past its length."""
    program = tl.program_id(0)
    which = program // blocks
    start = program % blocks * BLOCK_ROWS
    own = tensor + head_start(which // heads, which % heads, strides)
    # [BLOCK_ROWS BLOCK_WIDTH]
    block = load_block(own, start, length, strides[2], WIDTH, BLOCK_ROWS, BLOCK_WIDTH, True).to(ACC)
    row = start + tl.arange(0, BLOCK_ROWS)
    tl.store(squares + which.to(tl.int64) * pitch + row, tl.sum(block * block, 1), mask=row < pitch)


def squared_norms(tensor: Tensor, whole: int = 1) -> Tensor:
    r"""The squared lengths $|x_i|^2$ ``[b h n]`` of the rows of ``[b h n d]``, as they are rounded.

    Zeros follow up to a multiple of ``whole``, so that blocks which end past n may be read without a mask.
    """
    batch, heads, length, width = tensor.shape
    pitch = triton.cdiv(length, whole) * whole
    squares = torch.empty(batch, heads, pitch, dtype=statistics_type(tensor), device=tensor.device)
    block = config("squared_norms_kernel", width=block_width(width), dtype=tensor.dtype, length=length)
    blocks = triton.cdiv(pitch, block.rows)
    launch(
        squared_norms_kernel,
        blocks * batch * heads,
        block,
        tensor=tensor,
        squares=squares,
        length=length,
        pitch=pitch,
        heads=heads,
        blocks=blocks,
        strides=tensor.stride()[:3],
        WIDTH=width,
        BLOCK_WIDTH=block_width(width),
        ACC=accumulator(tensor),
    )
    return squares
