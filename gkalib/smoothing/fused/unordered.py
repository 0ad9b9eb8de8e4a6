"""Gaussian attention's gradient with five products under any mask, by sums that are **not deterministic**.

A program owns a block of keys and walks over the queries that see it. What a pair gives to its query is
added to memory by the unit that copies blocks, as other programs do at the same time: a sum of rounded
numbers depends on who comes first, so two runs differ in their last bits. `gka_backward_kernel`, with seven
products under a causal mask, gives the same bits every time. Where no ε is added to the row sums, Σ_j S_ij
is zero for each query i, so that a query's own token is not needed.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from gkalib.smoothing.fused.gaussian import Tokens, end_rows, gaussian_block
from gkalib.smoothing.fused.launch import interpreting
from gkalib.smoothing.fused.scores import (
    LOG2_E,
    Head,
    block_width,
    dot,
    edge_block,
    head_of,
    lane_sums,
    load_again,
    load_block,
    load_pairs,
    place,
    scale_of,
    seen,
    sum_type,
    walk_of,
)


@triton.jit
def add_rows(
    sums, block, whole, start, length, DESCRIBED: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Add a block to rows start … start + BLOCK of a head whose row 0 is row ``whole`` of all."""
    if DESCRIBED:
        # Past the end of a head the block is zero.
        sums.atomic_add([whole + start, 0], block)
    else:
        row = start + tl.arange(0, BLOCK)
        address = sums + (whole + row).to(tl.int64)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
        tl.atomic_add(address, block, mask=(row < length)[:, None])


@triton.jit
def add_queries(
    acc, slope_sum, row_x, row_norm, tokens, walk, at, sums, whole, scale, EDGE: tl.constexpr,
    DESCRIBED: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Add what queries i give to keys j, Σ_i E_ij g_i + S_ij x_i and Σ_i S_ij, and what they get.

    S_ij = E_ij (g_i·x_j − D_i)/σ².
    """
    # [BLOCK WIDTH] twice, [BLOCK] twice
    column_x = load_block(tokens.x, at, tokens.length, BLOCK, WIDTH, EDGE)
    column_g = load_block(tokens.g, at, tokens.length, BLOCK, WIDTH, EDGE)
    column_norm, column_delta = load_pairs(tokens.pairs, at, BLOCK)
    weight = gaussian_block(row_x, column_x, row_norm, column_norm, LOG2_E * scale)
    if EDGE:
        weight = tl.where(seen(walk, at, BLOCK), weight, 0.0)
    slope = weight * (dot(row_x, tl.trans(column_g)) * scale - column_delta[None, :])
    acc = dot(weight, column_g, acc)
    rounded = slope.to(column_x.dtype)
    acc = dot(rounded, column_x, acc)
    # [BLOCK WIDTH]
    of_query = dot(tl.trans(rounded), row_x)
    add_rows(sums, of_query, whole, at, tokens.length, DESCRIBED, WIDTH, BLOCK)
    return acc, slope_sum + lane_sums(slope)


@triton.jit
def gka_backward_unordered_kernel(
    x, g, pairs, numbers, sums, own_sums, mask, heads, length, pitch, DESCRIBED: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr,
):  # fmt: skip
    """Add to the sums what a block of keys gets from the queries that see it, and gives to them."""
    batch, head, sequence, start = place(heads, length, BLOCK_ROWS)
    g = Head(g + sequence * length * WIDTH, WIDTH)
    tokens = Tokens(head_of(x, batch, head), g, pairs + 2 * sequence * pitch, length)
    scale = scale_of(numbers, head)
    row = start + tl.arange(0, BLOCK_ROWS)
    walk = walk_of(row, mask, batch, length, length, BLOCK_COLUMNS)
    # [BLOCK_ROWS WIDTH], [BLOCK_ROWS]
    row_x = load_block(tokens.x, start, length, BLOCK_ROWS, WIDTH, True)
    row_norm, _ = load_pairs(tokens.pairs, start, BLOCK_ROWS)
    ACC: tl.constexpr = sum_type(row_x.dtype)
    acc = tl.zeros([BLOCK_ROWS, WIDTH], ACC)
    slope_sum = tl.zeros([BLOCK_ROWS, 4], ACC)
    whole = sequence.to(tl.int32) * length
    for k in tl.range(0, walk.edges):
        at = edge_block(walk, k, BLOCK_COLUMNS)
        acc, slope_sum = add_queries(
            acc, slope_sum, row_x, row_norm, tokens, walk, at, sums, whole, scale, True, DESCRIBED, WIDTH,
            BLOCK_COLUMNS,
        )  # fmt: skip
    for at in tl.range(walk.inner_start, walk.inner_stop, BLOCK_COLUMNS):
        acc, slope_sum = add_queries(
            acc, slope_sum, row_x, row_norm, tokens, walk, at, sums, whole, scale, False, DESCRIBED, WIDTH,
            BLOCK_COLUMNS,
        )  # fmt: skip
    # [BLOCK_ROWS WIDTH]
    again = load_again(tokens.x, row, length, WIDTH).to(ACC)
    acc -= again * tl.sum(slope_sum, 1)[:, None]
    add_rows(own_sums, acc, whole, start, length, DESCRIBED, WIDTH, BLOCK_ROWS)


@triton.jit
def gka_end_kernel(
    sums, x, grad_x, share, numbers, heads, length, WIDTH: tl.constexpr, BLOCK_ROWS: tl.constexpr
):  # fmt: skip
    """dx in its own type, and each row's term of dL/dσ, of one block of rows of one head."""
    batch, head, sequence, start = place(heads, length, BLOCK_ROWS)
    vector = sequence * length
    # [BLOCK_ROWS block_width]
    acc = load_block(Head(sums + vector * WIDTH, WIDTH), start, length, BLOCK_ROWS, WIDTH, True)
    end_rows(
        acc, tl.zeros([BLOCK_ROWS, 4], acc.dtype), start, head_of(x, batch, head),
        head_of(grad_x, batch, head), share + vector, numbers.sigma + head * numbers.step, length, WIDTH,
        BLOCK_ROWS,
    )  # fmt: skip


def whole_rows(sums: Tensor, block: int) -> Tensor | TensorDescriptor:
    """A descriptor of all rows of ``[b h n d]``, for blocks of so many; the interpreter adds without."""
    if interpreting():
        return sums
    return TensorDescriptor.from_tensor(sums.view(-1, sums.shape[-1]), [block, sums.shape[-1]])


def fits(x: Tensor) -> bool:
    """Whether descriptors can describe x: half precision on an H100, 64 or 128 wide, aligned to 16 bytes."""
    apart = [x.stride(at) * x.itemsize for at in range(3)]
    aligned = x.data_ptr() % 16 == 0 and all(step > 0 and step % 16 == 0 for step in apart)
    if interpreting():
        return aligned and x.shape[-1] == block_width(x.shape[-1])
    hopper = x.device.type == "cpu" or torch.cuda.get_device_capability(x.device)[0] == 9
    return hopper and aligned and x.itemsize == 2 and x.shape[-1] in (64, 128)
