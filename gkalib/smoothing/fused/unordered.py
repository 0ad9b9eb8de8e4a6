"""Gaussian attention's gradient with five products under any mask, by sums that are **not deterministic**.

A program owns a block of keys and walks over the queries that see it. What a pair gives to its query is
added to memory by the unit that copies blocks, as other programs do at the same time: a sum of rounded
numbers depends on who comes first, so two runs differ in their last bits. `gka_backward_kernel`, with seven
products under a causal mask, gives the same bits every time. Where no ε is added to the row sums, Σ_j S_ij
is zero for each query i, so that a query's own token is not needed.
"""

import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from gkalib.smoothing.fused.gaussian import end_rows, gaussian_block
from gkalib.smoothing.fused.launch import interpreting
from gkalib.smoothing.fused.scores import (
    LOG2_E,
    block_loops,
    edge_block,
    head_number,
    head_start,
    lane_sums,
    load_block,
    load_pairs,
    only_spans,
    place,
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
    acc, slope_sum, row_x, row_norm, at, x, scaled, pairs, sums, whole, low, high, length, x_row, precision,
    EDGE: tl.constexpr, DESCRIBED: tl.constexpr, WIDTH: tl.constexpr, BLOCK_ROWS: tl.constexpr,
    BLOCK: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Add what queries i give to keys j, Σ_i E_ij g_i + S_ij x_i and Σ_i S_ij, and what they get.

    S_ij = E_ij (g_i·x_j − D_i)/σ².
    """
    # [BLOCK WIDTH] twice, [BLOCK] twice
    column_x = load_block(x, at, length, x_row, WIDTH, BLOCK, WIDTH, EDGE)
    column_g = load_block(scaled, at, length, WIDTH, WIDTH, BLOCK, WIDTH, EDGE)
    column_norm, column_delta = load_pairs(pairs, at, BLOCK)
    weight = gaussian_block(row_x, column_x, row_norm, column_norm, LOG2_E * precision, PRECISION, ACC)
    if EDGE:
        weight = only_spans(weight, at, low, high, BLOCK)
    product = tl.dot(row_x, tl.trans(column_g), input_precision=PRECISION, out_dtype=ACC)
    slope = weight * (product * precision - column_delta[None, :])
    acc = tl.dot(weight.to(column_g.dtype), column_g, acc, input_precision=PRECISION, out_dtype=ACC)
    rounded = slope.to(column_x.dtype)
    acc = tl.dot(rounded, column_x, acc, input_precision=PRECISION, out_dtype=ACC)
    # [BLOCK WIDTH]
    of_query = tl.dot(tl.trans(rounded), row_x, input_precision=PRECISION, out_dtype=ACC)
    add_rows(sums, of_query, whole, at, length, DESCRIBED, WIDTH, BLOCK)
    return acc, slope_sum + lane_sums(slope, BLOCK_ROWS, BLOCK)


@triton.jit
def gka_backward_unordered_kernel(
    x, scaled, pairs, sigma, sigma_step, sums, own_sums, first, last, left, right, heads, length, pitch,
    x_strides, span_batch, KIND: tl.constexpr, DESCRIBED: tl.constexpr, WIDTH: tl.constexpr,
    PRECISION: tl.constexpr, ACC: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr,
):  # fmt: skip
    """Add to the sums what a block of keys gets from the queries that see it, and gives to them."""
    batch, head, sequence, start = place(heads, length, BLOCK_ROWS)
    x += head_start(batch, head, x_strides)
    scaled += sequence * length * WIDTH
    pairs += 2 * sequence * pitch
    precision = head_number(sigma, head, sigma_step, True)
    row = start + tl.arange(0, BLOCK_ROWS)
    low, high, inner_start, inner_stop, edge, edges = block_loops(
        row, first + batch * span_batch, last + batch * span_batch, left, right, 0, length, length, KIND,
        BLOCK_COLUMNS,
    )  # fmt: skip
    # [BLOCK_ROWS WIDTH], [BLOCK_ROWS]
    row_x = load_block(x, start, length, x_strides[2], WIDTH, BLOCK_ROWS, WIDTH, True)
    row_norm, _ = load_pairs(pairs, start, BLOCK_ROWS)
    acc = tl.zeros([BLOCK_ROWS, WIDTH], ACC)
    slope_sum = tl.zeros([BLOCK_ROWS, 4], ACC)
    whole = sequence.to(tl.int32) * length
    for k in tl.range(0, edges):
        at = edge_block(k, edge, inner_start, inner_stop, BLOCK_COLUMNS)
        acc, slope_sum = add_queries(
            acc, slope_sum, row_x, row_norm, at, x, scaled, pairs, sums, whole, low, high, length,
            x_strides[2], precision, True, DESCRIBED, WIDTH, BLOCK_ROWS, BLOCK_COLUMNS, PRECISION, ACC,
        )  # fmt: skip
    for at in tl.range(inner_start, inner_stop, BLOCK_COLUMNS):
        acc, slope_sum = add_queries(
            acc, slope_sum, row_x, row_norm, at, x, scaled, pairs, sums, whole, low, high, length,
            x_strides[2], precision, False, DESCRIBED, WIDTH, BLOCK_ROWS, BLOCK_COLUMNS, PRECISION, ACC,
        )  # fmt: skip
    # Read once more, by a policy of its own: held through the loops, x_j would crowd out the sums.
    address = x + row.to(tl.int64)[:, None] * x_strides[2] + tl.arange(0, WIDTH)[None, :]
    # [BLOCK_ROWS WIDTH]
    again = tl.load(address, mask=(row < length)[:, None], other=0.0, eviction_policy="evict_first").to(ACC)
    acc -= again * tl.sum(slope_sum, 1)[:, None]
    add_rows(own_sums, acc, whole, start, length, DESCRIBED, WIDTH, BLOCK_ROWS)


@triton.jit
def gka_end_kernel(
    sums, x, grad_x, share, sigma, sigma_step, heads, length, x_strides, grad_strides,
    WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr, ACC: tl.constexpr, BLOCK_ROWS: tl.constexpr,
):  # fmt: skip
    """dx in its own type, and each row's term of dL/dσ, of one block of rows of one head."""
    batch, head, sequence, start = place(heads, length, BLOCK_ROWS)
    vector = sequence * length
    # [BLOCK_ROWS WIDTH]
    acc = load_block(sums + vector * WIDTH, start, length, WIDTH, WIDTH, BLOCK_ROWS, BLOCK_WIDTH, True)
    end_rows(
        acc, tl.zeros([BLOCK_ROWS, 4], ACC), start, x + head_start(batch, head, x_strides),
        grad_x + head_start(batch, head, grad_strides), share + vector, sigma + head * sigma_step, length,
        x_strides[2], grad_strides[2], WIDTH, BLOCK_ROWS, BLOCK_WIDTH, ACC,
    )  # fmt: skip


def whole_rows(sums: Tensor, block: int) -> Tensor | TensorDescriptor:
    """A descriptor of all rows of ``[b h n d]``, for blocks of so many; the interpreter adds without."""
    if interpreting():
        return sums
    return TensorDescriptor.from_tensor(sums.view(-1, sums.shape[-1]), [block, sums.shape[-1]])
