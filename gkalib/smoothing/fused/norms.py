"""Squared lengths of queries and keys, formed once so that no loop over blocks repeats them."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from gkalib.smoothing.fused.configs import config
from gkalib.smoothing.fused.launch import heads_of, launch, statistics_type, step_of
from gkalib.smoothing.fused.scores import (
    LOG2_E,
    Numbers,
    block_width,
    half_norm,
    head_of,
    load_block,
    place,
    scale_of,
    sum_type,
)


@triton.jit
def squared_norms_kernel(
    tensor, squares, numbers, length, pitch, heads, WIDTH: tl.constexpr, BLOCK_ROWS: tl.constexpr
):  # fmt: skip
    """One block of rows of one head, zero past its length; with a σ |x_i|² log2(e)/(2σ²), ∞ past it."""
    batch, head, sequence, start = place(heads, pitch, BLOCK_ROWS)
    # [BLOCK_ROWS block_width]
    block = load_block(head_of(tensor, batch, head), start, length, BLOCK_ROWS, WIDTH, True)
    row = start + tl.arange(0, BLOCK_ROWS)
    if numbers.sigma is None:
        wide = block.to(sum_type(block.dtype))
        norm = tl.sum(wide * wide, 1)
    else:
        norm = tl.where(row < length, half_norm(block, LOG2_E * scale_of(numbers, head)), float("inf"))
    tl.store(squares + sequence * pitch + row, norm, mask=row < pitch)


def squared_norms(tensor: Tensor, whole: int = 1, sigma: Tensor | None = None) -> Tensor:
    r"""The squared lengths $|x_i|^2$ ``[b h n]`` of the rows of ``[b h n d]``, as they are rounded.

    Zeros follow up to a multiple of ``whole``, so that blocks which end past n may be read without a mask.
    With a σ, ``[h]`` or ``[1]``, they are $|x_i|^2 \log_2 e / 2\sigma^2$, and ∞ follows: what lies there
    weighs nothing.
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
        numbers=Numbers(None, None, sigma, 0 if sigma is None else step_of(sigma)),
        length=length,
        pitch=pitch,
        heads=heads,
        WIDTH=width,
    )
    return squares
