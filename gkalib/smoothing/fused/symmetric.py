"""The gradient of one tensor that is smoothed by itself under a Gaussian. Chapter 18 teaches it."""

from typing import Any, NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from gkalib.smoothing.fused.configs import config
from gkalib.smoothing.fused.launch import (
    dense_rows,
    derived,
    empty,
    heads_of,
    launch,
    mask_of,
    numbers_of,
    token_major,
)
from gkalib.smoothing.fused.scores import (
    LOG2_E,
    Head,
    block_width,
    dot,
    edge_block,
    half_norm,
    head_of,
    lane_sums,
    load_again,
    load_block,
    load_pairs,
    place,
    scale_of,
    seen,
    store_block,
    sum_type,
    walk_of,
)
from gkalib.smoothing.spans import Spans

PITCH = 128
"""Numbers of tokens, such as norms, fill a multiple of this. No block is longer, so none reads past them."""


def gka_backward(
    grad_out: Tensor, x: Tensor, out: Tensor, total: Tensor, sigma: Tensor, spans: Spans
) -> tuple[Tensor, Tensor]:
    r"""The gradient by x. With $g_i = dO_i / t_i$, $D_i = \langle g_i, O_i \rangle$, $m_{ij}$ 1 if i sees j:

    $dx_i = \sum_j m_{ji} E_{ij} g_j + \sigma^{-2} \sum_j W_{ij} (x_j - x_i)$,
    $W_{ij} = E_{ij} (m_{ij} (g_i \cdot x_j - D_i) + m_{ji} (x_i \cdot g_j - D_j))$.

    One walk over the columns and five products a block where the mask is symmetric, two walks and seven
    products where it is not; no atomics, so the same bits every time. O(λx, λσ) = λ O(x, σ), so by
    Euler's identity $dL/d\sigma = \sum_i (\langle O_i, dO_i \rangle - \langle x_i, dx_i \rangle)/\sigma$.

    Args:
        grad_out, x, out: ``[b h n d]``; total: ``[b h n]``; sigma, spans: as `smooth_forward` had them, and
            ``total`` what it gave.

    Returns:
        dx as ``[b h n d]``, and each row's term of dL/dσ as ``[b h n]``.
    """
    x, grad_out, out = dense_rows(x), dense_rows(grad_out), dense_rows(out)
    batch, heads, length, width = x.shape
    grad_x, total = token_major(x), derived(Tensor.contiguous, total)
    share = empty(total, *total.shape)
    if x.numel() == 0:
        return grad_x, share
    masked = not spans.all(length, length)
    # Where every query sees itself, documents are symmetric, and a band is if both its sides are alike.
    mutual = not masked or spans.left == spans.right
    seen = spans if mutual else spans.inverse(length, length, derived)
    pitch = triton.cdiv(length, PITCH) * PITCH
    wanted = {"width": block_width(width), "dtype": x.dtype, "length": length}
    wanted |= {"device": x.device, "operation": "gka"}
    shared = {
        "x": heads_of(x),
        "numbers": numbers_of(None, None, sigma),
        "g": empty(x, *x.shape),
        "pairs": empty(total, batch, heads, pitch, 2),
        "share": share,
        "heads": heads,
        "length": length,
        "pitch": pitch,
        "WIDTH": width,
    }
    own = config("gka_prepare", **wanted)
    launch(
        gka_prepare_kernel,
        triton.cdiv(pitch, own.rows) * batch * heads,
        own,
        grad_out=heads_of(grad_out),
        out=heads_of(out),
        total_sum=total,
        **shared,
    )
    own = config("gka_backward", masked=not mutual, **wanted)
    assert max(own.rows, own.columns) <= PITCH
    launch(
        gka_backward_kernel,
        triton.cdiv(length, own.rows) * batch * heads,
        own,
        grad_x=heads_of(grad_x),
        mask=mask_of(spans, length, length),
        seen_mask=mask_of(seen, length, length),
        MUTUAL=mutual,
        **shared,
    )
    return grad_x, share


@triton.jit
def gka_prepare_kernel(
    grad_out, x, out, total_sum, numbers, g, pairs, share, heads, length, pitch,
    WIDTH: tl.constexpr, BLOCK_ROWS: tl.constexpr,
):  # fmt: skip
    """What the backward pass needs of each row: g_i = dO_i / total_i, n_i and <g_i, O_i>/σ², and <dO_i, O_i>.

    Past the end n is ∞, so that no weight there differs from zero.

    The inner product by σ² takes g as it was rounded, so that the gradient is that of a nearby dO.
    """
    batch, head, sequence, start = place(heads, pitch, BLOCK_ROWS)
    vector = sequence * length
    x, grad_out, out = head_of(x, batch, head), head_of(grad_out, batch, head), head_of(out, batch, head)
    scale = scale_of(numbers, head)
    row = start + tl.arange(0, BLOCK_ROWS)
    # [BLOCK_ROWS block_width] three times, [BLOCK_ROWS]
    block = load_block(x, start, length, BLOCK_ROWS, WIDTH, True)
    grad = load_block(grad_out, start, length, BLOCK_ROWS, WIDTH, True)
    result = load_block(out, start, length, BLOCK_ROWS, WIDTH, True)
    ACC: tl.constexpr = sum_type(block.dtype)
    total = tl.load(total_sum + vector + row, mask=row < length, other=1.0)
    own_g = (grad.to(ACC) / total[:, None]).to(block.dtype)
    store_block(Head(g + vector * WIDTH, WIDTH), own_g, start, length, WIDTH)
    tl.store(share + vector + row, tl.sum(grad.to(ACC) * result.to(ACC), 1), mask=row < length)
    pair = pairs + 2 * sequence * pitch + 2 * row
    own_norm = tl.where(row < length, half_norm(block, LOG2_E * scale), float("inf"))
    tl.store(pair, own_norm, mask=row < pitch)
    tl.store(pair + 1, tl.sum(own_g.to(ACC) * result.to(ACC), 1) * scale, mask=row < pitch)


@triton.jit
def gka_backward_kernel(
    x, g, pairs, numbers, grad_x, share, mask, seen_mask, heads, length, pitch, MUTUAL: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr,
):  # fmt: skip
    """dx_i = Σ_j m_ji E_ij g_j + Σ_j W_ij (x_j − x_i) for a block of rows.

    A row's share <O_i, dO_i> becomes (<O_i, dO_i> − <x_i, dx_i>)/σ.

    MUTUAL: j sees i wherever i sees j, so that one walk over the columns does; else there are two.
    """
    batch, head, sequence, start = place(heads, length, BLOCK_ROWS)
    vector = sequence * length
    g = Head(g + vector * WIDTH, WIDTH)
    tokens = Tokens(head_of(x, batch, head), g, pairs + 2 * sequence * pitch, length)
    scale = scale_of(numbers, head)
    row = start + tl.arange(0, BLOCK_ROWS)
    # [BLOCK_ROWS block_width] twice, [BLOCK_ROWS] twice
    row_x = load_block(tokens.x, start, length, BLOCK_ROWS, WIDTH, True)
    row_g = load_block(tokens.g, start, length, BLOCK_ROWS, WIDTH, True)
    norm, delta = load_pairs(tokens.pairs, start, BLOCK_ROWS)
    rows = Rows(row_x, row_g, norm, delta)
    ACC: tl.constexpr = sum_type(rows.x.dtype)
    acc = tl.zeros([BLOCK_ROWS, block_width(WIDTH)], ACC)
    slope_sum = tl.zeros([BLOCK_ROWS, 4], ACC)
    acc, slope_sum = backward_span(
        acc, slope_sum, rows, tokens, row, mask, batch, scale, True, MUTUAL, WIDTH, BLOCK_COLUMNS
    )
    if not MUTUAL:
        acc, slope_sum = backward_span(
            acc, slope_sum, rows, tokens, row, seen_mask, batch, scale, False, True, WIDTH, BLOCK_COLUMNS
        )
    grad_x, share, sigma = head_of(grad_x, batch, head), share + vector, numbers.sigma + head * numbers.step
    row = start + tl.arange(0, BLOCK_ROWS)  # formed again, so that the loops do not hold it
    # [BLOCK_ROWS block_width]
    again = load_again(tokens.x, row, length, WIDTH).to(ACC)
    grad = acc - again * tl.sum(slope_sum, 1)[:, None]
    euler = tl.load(share + row, mask=row < length, other=0.0) - tl.sum(again * grad, 1)
    euler /= tl.load(sigma, eviction_policy="evict_first")
    tl.store(share + row, euler, mask=row < length)
    store_block(grad_x, grad, start, length, WIDTH)


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
    # E_ij = exp(−|x_i − x_j|²/(2σ²)): at most 1, and 1 where i = j.
    factor = LOG2_E * scale
    score = dot(rows.x, tl.trans(column_x)) * factor
    weight = tl.exp2(score - (rows.norm[:, None] + column_norm[None, :]))
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
    WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The sums of `backward_block` over all columns of a span."""
    MASKED: tl.constexpr = mask.first is not None or mask.left is not None
    walk = walk_of(row, mask, batch, tokens.length, tokens.length, BLOCK)
    for k in tl.range(0, walk.edges):
        at = edge_block(walk, k, BLOCK)
        acc, slope_sum = backward_block(
            acc, slope_sum, rows, tokens, walk, at, scale, SEES, SEEN, MASKED, True, WIDTH, BLOCK
        )
    for at in tl.range(walk.inner_start, walk.inner_stop, BLOCK):
        acc, slope_sum = backward_block(
            acc, slope_sum, rows, tokens, walk, at, scale, SEES, SEEN, False, False, WIDTH, BLOCK
        )
    return acc, slope_sum
