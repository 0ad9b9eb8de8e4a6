"""What the programs for Gaussian attention of one tensor share: blocks, spans, what begins and ends rows.

Chapters 15 and 16 teach them.
"""

import triton
import triton.language as tl

from gkalib.smoothing.fused.scores import (
    ALL,
    LOG2_E,
    block_loops,
    edge_block,
    half_norm,
    lane_sums,
    load_block,
    load_pairs,
    only_spans,
    store_block,
)


@triton.jit
def gaussian_block(row_x, column_x, row_norm, column_norm, c, PRECISION: tl.constexpr, ACC: tl.constexpr):
    """E_ij = exp2(c x_i·x_j − n_i − n_j) = exp(−|x_i − x_j|²/(2σ²)): at most 1, and 1 where i = j."""
    product = tl.dot(row_x, tl.trans(column_x), input_precision=PRECISION, out_dtype=ACC)
    return tl.exp2(product * c - (row_norm[:, None] + column_norm[None, :]))


@triton.jit
def add_columns(
    acc, total, row_x, row_norm, column_x, column_norm, at, low, high, c, MASKED: tl.constexpr,
    BLOCK: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Add Σ_j E_ij x_j and Σ_j E_ij over one block of columns; MASKED leaves out what a row may not see."""
    weight = gaussian_block(row_x, column_x, row_norm, column_norm, c, PRECISION, ACC)
    if MASKED:
        weight = only_spans(weight, at, low, high, BLOCK)
    total += lane_sums(weight, row_x.shape[0], BLOCK)
    acc = tl.dot(weight.to(column_x.dtype), column_x, acc, input_precision=PRECISION, out_dtype=ACC)
    return acc, total


@triton.jit
def forward_block(
    acc, total, row_x, row_norm, at, x, norm, low, high, length, stride, c,
    EDGE: tl.constexpr, KIND: tl.constexpr, NORMS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Load one block of columns and add it."""
    # [BLOCK BLOCK_WIDTH], key and value at once
    column_x = load_block(x, at, length, stride, WIDTH, BLOCK, BLOCK_WIDTH, EDGE)
    column = at + tl.arange(0, BLOCK)
    column_norm = tl.load(norm + column) if NORMS else half_norm(column_x, c, ACC)
    if EDGE and not NORMS:
        column_norm = tl.where(column < length, column_norm, float("inf"))
    return add_columns(
        acc, total, row_x, row_norm, column_x, column_norm, at, low, high, c, EDGE and KIND != ALL, BLOCK,
        PRECISION, ACC,
    )  # fmt: skip


@triton.jit
def prepare_rows(
    start, grad_out, x, out, total_sum, scaled, pairs, share, precision, length, pitch, grad_row, x_row,
    out_row, SIDE_BY_SIDE: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, BLOCK_WIDTH: tl.constexpr,
    ACC: tl.constexpr,
):  # fmt: skip
    """What the backward pass needs of each row: g_i = dO_i / total_i, n_i and <g_i, O_i>/σ², and <dO_i, O_i>.

    Past the end n is ∞, so that no weight there differs from zero.

    The inner product by σ² takes g as it was rounded, so that the gradient is that of a nearby dO.
    """
    row = start + tl.arange(0, BLOCK)
    # [BLOCK BLOCK_WIDTH] three times, [BLOCK]
    block = load_block(x, start, length, x_row, WIDTH, BLOCK, BLOCK_WIDTH, True)
    grad = load_block(grad_out, start, length, grad_row, WIDTH, BLOCK, BLOCK_WIDTH, True)
    result = load_block(out, start, length, out_row, WIDTH, BLOCK, BLOCK_WIDTH, True)
    total = tl.load(total_sum + row, mask=row < length, other=1.0)
    g = (grad.to(ACC) / total[:, None]).to(x.dtype.element_ty)
    store_block(scaled, g, start, length, WIDTH, WIDTH, BLOCK, BLOCK_WIDTH)
    tl.store(share + row, tl.sum(grad.to(ACC) * result.to(ACC), 1), mask=row < length)
    norm, delta = (
        (pairs + 2 * row, pairs + 2 * row + 1) if SIDE_BY_SIDE else (pairs + row, pairs + pitch + row)
    )
    found = tl.where(row < length, half_norm(block, LOG2_E * precision, ACC), float("inf"))
    tl.store(norm, found, mask=row < pitch)
    tl.store(delta, tl.sum(g.to(ACC) * result.to(ACC), 1) * precision, mask=row < pitch)


@triton.jit
def backward_block(
    acc, weight_sum, row_x, row_g, row_norm, row_delta, at, x, scaled, pairs, low, high, length, stride,
    precision, SEES: tl.constexpr, SEEN: tl.constexpr, EDGE: tl.constexpr, KIND: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, BLOCK_WIDTH: tl.constexpr, PRECISION: tl.constexpr,
    ACC: tl.constexpr,
):  # fmt: skip
    """Add Σ_j [E_ij g_j] + W_ij x_j and Σ_j W_ij over one block of columns.

    SEES: columns that a row sees give W_ij the part E_ij (g_i·x_j − D_i)/σ².
    SEEN: columns that see a row give it E_ij (x_i·g_j − D_j)/σ², and the sum in brackets.
    """
    # [BLOCK BLOCK_WIDTH]
    column_x = load_block(x, at, length, stride, WIDTH, BLOCK, BLOCK_WIDTH, EDGE)
    column_norm, column_delta = load_pairs(pairs, at, BLOCK)
    weight = gaussian_block(row_x, column_x, row_norm, column_norm, LOG2_E * precision, PRECISION, ACC)
    if EDGE and KIND != ALL:
        weight = only_spans(weight, at, low, high, BLOCK)
    if SEEN:
        # [BLOCK BLOCK_WIDTH]
        column_g = load_block(scaled, at, length, WIDTH, WIDTH, BLOCK, BLOCK_WIDTH, EDGE)
        product = tl.dot(row_x, tl.trans(column_g), input_precision=PRECISION, out_dtype=ACC)
        if SEES:
            product = tl.dot(row_g, tl.trans(column_x), product, input_precision=PRECISION, out_dtype=ACC)
            slope = weight * (product * precision - (row_delta[:, None] + column_delta[None, :]))
        else:
            slope = weight * (product * precision - column_delta[None, :])
        acc = tl.dot(weight.to(column_g.dtype), column_g, acc, input_precision=PRECISION, out_dtype=ACC)
    else:
        product = tl.dot(row_g, tl.trans(column_x), input_precision=PRECISION, out_dtype=ACC)
        slope = weight * (product * precision - row_delta[:, None])
    acc = tl.dot(slope.to(column_x.dtype), column_x, acc, input_precision=PRECISION, out_dtype=ACC)
    return acc, weight_sum + lane_sums(slope, row_x.shape[0], BLOCK)


@triton.jit
def backward_span(
    acc, weight_sum, row, row_x, row_g, row_norm, row_delta, x, scaled, pairs, first, last, left, right,
    length, stride, precision, SEES: tl.constexpr, SEEN: tl.constexpr, KIND: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, BLOCK_WIDTH: tl.constexpr, PRECISION: tl.constexpr,
    ACC: tl.constexpr, BLOCK_EDGE: tl.constexpr,
):  # fmt: skip
    """The sums of `backward_block` over all columns of a span, at its edges in blocks of BLOCK_EDGE."""
    low, high, inner_start, inner_stop, edge, edges = block_loops(
        row, first, last, left, right, 0, length, length, KIND, BLOCK
    )
    if BLOCK_EDGE != BLOCK:
        edges = tl.cdiv(length - inner_stop, BLOCK_EDGE)
    for k in tl.range(0, edges):
        at = edge_block(k, edge, inner_start, inner_stop, BLOCK_EDGE)
        acc, weight_sum = backward_block(
            acc, weight_sum, row_x, row_g, row_norm, row_delta, at, x, scaled, pairs, low, high, length,
            stride, precision, SEES, SEEN, True, KIND, WIDTH, BLOCK_EDGE, BLOCK_WIDTH, PRECISION, ACC,
        )  # fmt: skip
    for at in tl.range(inner_start, inner_stop, BLOCK):
        acc, weight_sum = backward_block(
            acc, weight_sum, row_x, row_g, row_norm, row_delta, at, x, scaled, pairs, low, high, length,
            stride, precision, SEES, SEEN, False, KIND, WIDTH, BLOCK, BLOCK_WIDTH, PRECISION, ACC,
        )  # fmt: skip
    return acc, weight_sum


@triton.jit
def end_rows(
    acc, weight_sum, start, x, grad_x, share, sigma, length, x_row, grad_row,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, BLOCK_WIDTH: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Store dx_i = acc_i − x_i Σ_j W_ij; a row's share <O_i, dO_i> becomes (<O_i, dO_i> − <x_i, dx_i>)/σ.

    Without sigma the division is left to the program.
    """
    row = start + tl.arange(0, BLOCK)
    # x_i and σ are read once more: held in registers through the loops, they crowd out the sums. A policy
    # of its own is what tells a load from the first one, with which the compiler would merge it.
    column = tl.arange(0, BLOCK_WIDTH)
    inside = (row < length)[:, None] & (column < WIDTH)[None, :]
    address = x + row.to(tl.int64)[:, None] * x_row + column[None, :]
    # [BLOCK BLOCK_WIDTH]
    again = tl.load(address, mask=inside, other=0.0, eviction_policy="evict_first").to(ACC)
    grad = acc - again * tl.sum(weight_sum, 1)[:, None]
    euler = tl.load(share + row, mask=row < length, other=0.0) - tl.sum(again * grad, 1)
    if sigma is not None:
        euler /= tl.load(sigma, eviction_policy="evict_first")
    tl.store(share + row, euler, mask=row < length)
    store_block(grad_x, grad, start, length, grad_row, WIDTH, BLOCK, BLOCK_WIDTH)
