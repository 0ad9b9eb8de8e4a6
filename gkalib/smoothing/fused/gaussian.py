"""What the programs for Gaussian attention of one tensor share: blocks, spans, what begins and ends rows.

Chapters 17 and 18 teach them.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from gkalib.smoothing.fused.scores import (
    LOG2_E,
    dot,
    edge_block,
    half_norm,
    lane_sums,
    load_again,
    load_block,
    load_pairs,
    seen,
    store_block,
    sum_type,
    walk_of,
)


@triton.jit
def gaussian_block(row_x, column_x, row_norm, column_norm, factor):
    """E_ij = exp2(factor x_i·x_j − n_i − n_j) = exp(−|x_i − x_j|²/(2σ²)): at most 1, and 1 where i = j."""
    return tl.exp2(dot(row_x, tl.trans(column_x)) * factor - (row_norm[:, None] + column_norm[None, :]))


@triton.jit
def add_columns(
    acc, total, row_x, row_norm, column_x, column_norm, walk, at, factor, MASKED: tl.constexpr
):  # fmt: skip
    """Add Σ_j E_ij x_j and Σ_j E_ij over one block of columns; MASKED leaves out what a row may not see."""
    weight = gaussian_block(row_x, column_x, row_norm, column_norm, factor)
    if MASKED:
        weight = tl.where(seen(walk, at, column_x.shape[0]), weight, 0.0)
    total += lane_sums(weight)
    return dot(weight, column_x, acc), total


@triton.jit
def forward_block(
    acc, total, row_x, row_norm, x, half_norms, walk, at, length, factor, MASKED: tl.constexpr,
    EDGE: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Load one block of columns and add it; EDGE: some may lie past the end."""
    # [BLOCK block_width], key and value at once
    column_x = load_block(x, at, length, BLOCK, WIDTH, EDGE)
    column = at + tl.arange(0, BLOCK)
    if half_norms is not None:
        column_norm = tl.load(half_norms + column)
    else:
        column_norm = half_norm(column_x, factor)
        if EDGE:
            column_norm = tl.where(column < length, column_norm, float("inf"))
    return add_columns(acc, total, row_x, row_norm, column_x, column_norm, walk, at, factor, MASKED)


class Tokens(NamedTuple):
    """A head as the backward pass reads it: x, g, the pairs of n and D/σ², and how many tokens there are."""

    x: Any
    g: Any
    pairs: Any
    length: Any


class Rows(NamedTuple):
    """A block of it, which a program owns."""

    x: Any
    g: Any
    norm: Any
    delta: Any


@triton.jit
def load_rows(tokens, start, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """The block of rows from start on."""
    # [BLOCK block_width] twice, [BLOCK] twice
    x = load_block(tokens.x, start, tokens.length, BLOCK, WIDTH, True)
    g = load_block(tokens.g, start, tokens.length, BLOCK, WIDTH, True)
    norm, delta = load_pairs(tokens.pairs, start, BLOCK)
    return Rows(x, g, norm, delta)


@triton.jit
def prepare_rows(
    tokens, start, grad_out, out, total_sum, share, scale, pitch, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """What the backward pass needs of each row: g_i = dO_i / total_i, n_i and <g_i, O_i>/σ², and <dO_i, O_i>.

    Past the end n is ∞, so that no weight there differs from zero.

    The inner product by σ² takes g as it was rounded, so that the gradient is that of a nearby dO.
    """
    length = tokens.length
    row = start + tl.arange(0, BLOCK)
    # [BLOCK block_width] three times, [BLOCK]
    block = load_block(tokens.x, start, length, BLOCK, WIDTH, True)
    grad = load_block(grad_out, start, length, BLOCK, WIDTH, True)
    result = load_block(out, start, length, BLOCK, WIDTH, True)
    ACC: tl.constexpr = sum_type(block.dtype)
    total = tl.load(total_sum + row, mask=row < length, other=1.0)
    g = (grad.to(ACC) / total[:, None]).to(block.dtype)
    store_block(tokens.g, g, start, length, WIDTH)
    tl.store(share + row, tl.sum(grad.to(ACC) * result.to(ACC), 1), mask=row < length)
    norm, delta = tokens.pairs + 2 * row, tokens.pairs + 2 * row + 1
    own_norm = tl.where(row < length, half_norm(block, LOG2_E * scale), float("inf"))
    tl.store(norm, own_norm, mask=row < pitch)
    tl.store(delta, tl.sum(g.to(ACC) * result.to(ACC), 1) * scale, mask=row < pitch)


@triton.jit
def backward_block(
    acc, slope_sum, rows, tokens, walk, at, scale, SEES: tl.constexpr, SEEN: tl.constexpr,
    MASKED: tl.constexpr, EDGE: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Add Σ_j [E_ij g_j] + W_ij x_j and Σ_j W_ij over one block of columns.

    SEES: columns that a row sees give W_ij the part E_ij (g_i·x_j − D_i)/σ².
    SEEN: columns that see a row give it E_ij (x_i·g_j − D_j)/σ², and the sum in brackets.
    """
    # [BLOCK block_width], [BLOCK] twice
    column_x = load_block(tokens.x, at, tokens.length, BLOCK, WIDTH, EDGE)
    column_norm, column_delta = load_pairs(tokens.pairs, at, BLOCK)
    weight = gaussian_block(rows.x, column_x, rows.norm, column_norm, LOG2_E * scale)
    if MASKED:
        weight = tl.where(seen(walk, at, BLOCK), weight, 0.0)
    if SEEN:
        # [BLOCK block_width]
        column_g = load_block(tokens.g, at, tokens.length, BLOCK, WIDTH, EDGE)
        product = dot(rows.x, tl.trans(column_g))
        if SEES:
            product = dot(rows.g, tl.trans(column_x), product)
            slope = weight * (product * scale - (rows.delta[:, None] + column_delta[None, :]))
        else:
            slope = weight * (product * scale - column_delta[None, :])
        acc = dot(weight, column_g, acc)
    else:
        slope = weight * (dot(rows.g, tl.trans(column_x)) * scale - rows.delta[:, None])
    return dot(slope, column_x, acc), slope_sum + lane_sums(slope)


@triton.jit
def backward_span(
    acc, slope_sum, rows, tokens, row, mask, batch, scale, SEES: tl.constexpr, SEEN: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, BLOCK_EDGE: tl.constexpr,
):  # fmt: skip
    """The sums of `backward_block` over all columns of a span, at its edges in blocks of BLOCK_EDGE."""
    MASKED: tl.constexpr = mask.first is not None or mask.left is not None
    walk = walk_of(row, mask, batch, tokens.length, tokens.length, BLOCK, BLOCK_EDGE)
    for k in tl.range(0, walk.edges):
        at = edge_block(walk, k, BLOCK_EDGE)
        acc, slope_sum = backward_block(
            acc, slope_sum, rows, tokens, walk, at, scale, SEES, SEEN, MASKED, True, WIDTH, BLOCK_EDGE
        )
    for at in tl.range(walk.inner_start, walk.inner_stop, BLOCK):
        acc, slope_sum = backward_block(
            acc, slope_sum, rows, tokens, walk, at, scale, SEES, SEEN, False, False, WIDTH, BLOCK
        )
    return acc, slope_sum


@triton.jit
def end_rows(
    acc, slope_sum, start, x, grad_x, share, sigma, length, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    """Store dx_i = acc_i − x_i Σ_j W_ij; a row's share <O_i, dO_i> becomes (<O_i, dO_i> − <x_i, dx_i>)/σ."""
    row = start + tl.arange(0, BLOCK)
    # [BLOCK block_width]
    again = load_again(x, row, length, WIDTH).to(acc.dtype)
    grad = acc - again * tl.sum(slope_sum, 1)[:, None]
    euler = tl.load(share + row, mask=row < length, other=0.0) - tl.sum(again * grad, 1)
    euler /= tl.load(sigma, eviction_policy="evict_first")
    tl.store(share + row, euler, mask=row < length)
    store_block(grad_x, grad, start, length, WIDTH)
