r"""Smoothing of separate queries, keys and values, without the matrix of weights. Chapter 17 teaches it.

$$s_{ij} = \log_2 e\,\big(s\, q_i^\top k_j - \tfrac{\nu}{2} |k_j|^2 + t_{i-j}\big), \qquad
O_i = \frac{\sum_j 2^{s_{ij} - c_i} v_j}{\sum_j 2^{s_{ij} - c_i}}$$

A program owns a block of rows i and walks over blocks of columns j: first those that hold an edge of the
mask, then those that every row sees. c_i is the score of the row's own key, found before the walk; if a sum
outgrows it, the walk is done again with a c_i that follows the largest score. Where query, key and value are
ONE tensor no score is larger than a row's own. Read from the top: what starts the program, the program, and
its parts in the order in which it needs them.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from gkalib.smoothing.fused.cards import SHORT, operation
from gkalib.smoothing.fused.configs import config, edge_columns
from gkalib.smoothing.fused.lag_bias import PAD, lag_scores, padded
from gkalib.smoothing.fused.launch import (
    dense_rows,
    heads_of,
    launch,
    mask_of,
    numbers_of,
    statistics,
    step_of,
    token_major,
)
from gkalib.smoothing.fused.scores import (
    LOG2_E,
    Heads,
    Numbers,
    block_width,
    dot,
    edge_block,
    half_norm,
    head_of,
    lane_sums,
    load_block,
    norm_of,
    place,
    scale_of,
    seen,
    store_block,
    sum_type,
    walk_of,
)
from gkalib.smoothing.spans import Spans

LOWEST: tl.constexpr = tl.constexpr(-1e30)
"""Where a running maximum starts: so low that what it weighs vanishes, and yet no infinity to subtract."""

WHOLE = 256
"""Norms of keys are kept for a multiple of so many: no block is longer."""


def smooth_forward(
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    scale: Tensor | None,
    norm: Tensor | None,
    table: Tensor | None,
    spans: Spans,
    normalize: bool,
    sigma: Tensor | None = None,
    eps: float = 0.0,
) -> tuple[Tensor, Tensor]:
    r"""Values summed with the weights of a kernel of the dot product, the distance and the lag.

    $$\log\kappa_{ij} = s\, q_i^\top k_j - \tfrac{\nu}{2}\big(|q_i|^2 + |k_j|^2\big) + t_{i + m - n - j},
    \qquad O_i = \sum_j \kappa_{ij} v_j \Big/ \sum_j \kappa_{ij}$$

    Before it is raised a score is shifted by that of the row's own key: no maximum need be followed. In
    float16 the shift grows where a block's sum is above ``limit``, which float16 reaches; in wider ranges a
    block of rows that ends above it is done again with a shift that grows.

    Without key and value all three are one tensor, with a σ, under a mask that lets each row see itself: of
    $t_i = \varepsilon + \sum_j \kappa_{ij}$ no term but ε is above 1, and no block has to be done again.

    Args:
        query, key, value: ``[b h n d]``, ``[b g m d]`` and ``[b g m e]`` of one type; g divides h, and query
            head i reads key head i // (h / g). Or one tensor and twice None.
        scale: s, ``[h]``, float32 (float64 for tensors of that type).
        norm: ν, likewise, or None for 0.
        table: t, ``[h n+m-1]`` likewise, with lag l at l + n − 1 less … m − 1 at the end; None for 0.
        spans: the keys that each query may see.
        normalize: whether the sum is divided; without it, O is the sum alone.
        sigma: σ, ``[h]`` or ``[1]`` likewise, in place of scale and norm where both are σ⁻².
        eps: ε, for one tensor.

    Returns:
        O ``[b h n e]``, and the base-2 logarithm of each row's sum without its term in |q_i|², ``[b h n]``
        (empty without ``normalize``); for one tensor t itself. A row that sees no key is zero, and its
        logarithm +∞, so that the weights 2^(score − logarithm) are zero too.
    """
    query, one = dense_rows(query), key is None
    key = query if key is None else dense_rows(key)
    value = query if value is None else dense_rows(value)
    batch, heads, rows, width = query.shape
    groups, keys, value_width = key.shape[1], key.shape[2], value.shape[3]
    out = token_major(query, value_width)
    log_sum = statistics(query, *((batch, heads, rows) if normalize else (0,)))
    if query.numel() == 0:
        return out, log_sum
    table = None if table is None else padded(table)
    squares, masked = None, not spans.all(rows, keys)
    if one:
        squares = squared_norms(key, WHOLE, sigma) if keys > SHORT else None
    elif norm is not None or sigma is not None:
        squares = squared_norms(key, WHOLE)
    gaussian, lags = squares is not None, table is not None
    block = config(
        "smooth_forward",
        width=max(block_width(width), block_width(value_width)),
        dtype=query.dtype,
        one=one,
        masked=masked,
        length=max(rows, keys),
        lags=lags,
        device=query.device,
        operation="gka" if one else operation("smooth", gaussian=gaussian, lags=lags, normalize=normalize),
    )
    launch(
        smooth_forward_kernel,
        triton.cdiv(rows, block.rows) * batch * heads,
        block,
        query=heads_of(query),
        key=Heads(None, None) if one else heads_of(key),
        value=Heads(None, None) if one else heads_of(value),
        out=heads_of(out),
        log_sum=log_sum if normalize else None,
        key_squares=squares,
        squares_pitch=0 if squares is None else squares.shape[2],
        table=table,
        table_pitch=0 if table is None else table.shape[1],
        numbers=numbers_of(scale, norm, sigma),
        # Beside a table every mask is a band, if as wide as all: else ptxas makes the products wait in turn.
        mask=mask_of(spans, rows, keys, band=lags),
        eps=eps,
        heads=heads,
        group=heads // groups,
        rows=rows,
        keys=keys,
        WIDTH=width,
        VALUE_WIDTH=value_width,
        BLOCK_EDGE=edge_columns(keys, block.columns, masked) if one else block.columns,
        FOLLOW=normalize and not one and query.dtype == torch.float16,
        LIMIT=limit(query.dtype),
        ROOM=room(query.dtype),
    )
    return out, log_sum


@triton.jit
def smooth_forward_kernel(
    query, key, value, out, log_sum, key_squares, squares_pitch, table, table_pitch, numbers, mask, eps,
    heads, group, rows, keys, WIDTH: tl.constexpr, VALUE_WIDTH: tl.constexpr, BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr, BLOCK_EDGE: tl.constexpr, FOLLOW: tl.constexpr, LIMIT: tl.constexpr,
    ROOM: tl.constexpr,
):  # fmt: skip
    """out_i = Σ_j κ_ij v_j for one block of rows i of one head; with log_sum divided by Σ_j κ_ij.

    ONE: the query's tensor is key and value too, and log_sum holds Σ_j κ_ij + eps itself. Columns behind the
    last whole block, and at the edges of a mask, come in blocks of BLOCK_EDGE.
    """
    ONE: tl.constexpr = key.start is None
    MASKED: tl.constexpr = mask.first is not None or mask.left is not None
    batch, head, sequence, start = place(heads, rows, BLOCK_ROWS)
    query = head_of(query, batch, head)
    if ONE:
        key, value, keys = query, query, rows
    else:
        key = head_of(key, batch, head // group)
        value = head_of(value, batch, head // group)
    # [BLOCK_ROWS block_width]
    row_query = load_block(query, start, rows, BLOCK_ROWS, WIDTH, True)
    ACC: tl.constexpr = sum_type(row_query.dtype)
    factor = scale_of(numbers, head) * LOG2_E
    ratio = 0.0
    if key_squares is not None:
        key_squares += (batch * (heads // group) + head // group).to(tl.int64) * squares_pitch
        if not ONE:
            factor = tl.where(factor == 0, 1e-30, factor)  # norms without a product
            ratio = 0.5 * LOG2_E * norm_of(numbers, head) / factor
    if table is not None:
        table += head.to(tl.int64) * table_pitch
    row = start + tl.arange(0, BLOCK_ROWS)
    walk = walk_of(row, mask, batch, rows, keys, BLOCK_COLUMNS, BLOCK_EDGE)
    inputs = Inputs(row_query, start, key, value, keys, key_squares, table, factor, ratio, walk)
    if ONE:
        shift = half_norm(row_query, factor) if key_squares is None else tl.load(key_squares + row)
    elif log_sum is not None:
        # Any shift near a row's largest score will do, and its own key's score is often near enough.
        shift = own_scores(inputs, row, rows, WIDTH)
        if ROOM:
            shift += ROOM
    elif key_squares is not None:
        wide = row_query.to(ACC)
        shift = factor * ratio * tl.sum(wide * wide, 1)
    else:
        shift = tl.zeros([BLOCK_ROWS], ACC)
    acc = tl.zeros([BLOCK_ROWS, block_width(VALUE_WIDTH)], ACC)
    total = tl.zeros([BLOCK_ROWS, 4], ACC)
    for k in tl.range(0, walk.edges):
        at = edge_block(walk, k, BLOCK_EDGE)
        acc, total, shift = smooth_block(
            acc, total, shift, inputs, at, WIDTH, VALUE_WIDTH, BLOCK_EDGE, FOLLOW, LIMIT, ROOM, ONE,
            MASKED or not ONE, True,
        )  # fmt: skip
    for at in tl.range(walk.inner_start, walk.inner_stop, BLOCK_COLUMNS):
        acc, total, shift = smooth_block(
            acc, total, shift, inputs, at, WIDTH, VALUE_WIDTH, BLOCK_COLUMNS, FOLLOW, LIMIT, ROOM, ONE, False,
            False,
        )  # fmt: skip
    if ONE:
        row_sum = tl.where(row < rows, tl.sum(total, 1) + eps, 1.0)
        acc /= row_sum[:, None]
        tl.store(log_sum + sequence * rows + row, row_sum, mask=row < rows)
    elif log_sum is not None:
        if not FOLLOW and tl.max(tl.where(row < rows, tl.sum(total, 1), 0.0)) > LIMIT:
            # A key was far nearer than the row's own: again, with a shift that follows the largest score.
            acc = tl.zeros([BLOCK_ROWS, block_width(VALUE_WIDTH)], ACC)
            total = tl.zeros([BLOCK_ROWS, 4], ACC)
            shift = tl.zeros([BLOCK_ROWS], ACC) + LOWEST
            first = tl.min(tl.where(walk.low < walk.high, walk.low, keys)) // BLOCK_COLUMNS * BLOCK_COLUMNS
            for at in tl.range(first, tl.max(walk.high), BLOCK_COLUMNS):
                acc, total, shift = smooth_block(
                    acc, total, shift, inputs, at, WIDTH, VALUE_WIDTH, BLOCK_COLUMNS, True, LIMIT, ROOM, ONE,
                    True, True,
                )  # fmt: skip
        row_sum = tl.sum(total, 1)
        sees = row_sum > 0
        row_sum = tl.where(sees, row_sum, 1.0)  # a row that sees no key: its sum over values is zero already
        acc /= row_sum[:, None]
        log_row_sum = tl.where(sees, shift + tl.log2(row_sum), float("inf"))
        tl.store(log_sum + sequence * rows + row, log_row_sum, mask=row < rows)
    store_block(head_of(out, batch, head), acc, start, rows, VALUE_WIDTH)


class Inputs(NamedTuple):
    """What a block of rows needs in its walk: its queries, and where keys, values and the rest are found.

    ``ratio`` is ν/2s: the scores are factor (q_i·k_j − ratio |k_j|²) + t.
    """

    row_query: Any
    row_start: Any
    key: Any
    value: Any
    keys: Any
    key_squares: Any
    table: Any
    factor: Any
    ratio: Any
    walk: Any


@triton.jit
def own_scores(inputs, row, rows, WIDTH: tl.constexpr):
    """The score of each row with the one key on its own place, or the nearest that it sees, [BLOCK_ROWS]."""
    row_query, key, walk, keys = inputs.row_query, inputs.key, inputs.walk, inputs.keys
    own = tl.minimum(tl.maximum(row + keys - rows, walk.low), walk.high - 1)
    column = tl.arange(0, block_width(WIDTH))
    address = key.start + own.to(tl.int64)[:, None] * key.stride + column[None, :]
    sees = walk.low < walk.high
    ACC: tl.constexpr = sum_type(row_query.dtype)
    # [BLOCK_ROWS block_width]
    own_key = tl.load(address, mask=sees[:, None] & (column < WIDTH)[None, :], other=0.0).to(ACC)
    scores = tl.sum(row_query.to(ACC) * own_key, 1)
    if inputs.key_squares is not None:
        scores -= inputs.ratio * tl.sum(own_key * own_key, 1)
    scores *= inputs.factor
    if inputs.table is not None:
        # [BLOCK_ROWS]
        scores += tl.load(inputs.table + (row - own + keys - 1 + PAD), mask=sees, other=0.0)
    return tl.maximum(scores, LOWEST)


@triton.jit
def smooth_block(
    acc, total, shift, inputs, at, WIDTH: tl.constexpr, VALUE_WIDTH: tl.constexpr, BLOCK: tl.constexpr,
    FOLLOW: tl.constexpr, LIMIT: tl.constexpr, ROOM: tl.constexpr, ONE: tl.constexpr, MASKED: tl.constexpr,
    EDGE: tl.constexpr,
):  # fmt: skip
    """Add a block of keys to acc = Σ_j 2^(s_ij − shift_i) v_j and total = Σ_j 2^(s_ij − shift_i), in parts.

    FOLLOW lets the shift grow with the largest score so far; to ROOM above it, where there is ROOM, and then
    only for a block of which a part sums to more than LIMIT. MASKED leaves out what a row may not see. At an
    EDGE columns may lie past the end.
    """
    # [BLOCK block_width]
    key_block = load_block(inputs.key, at, inputs.keys, BLOCK, WIDTH, EDGE)
    scores = log2_scores(inputs, shift, key_block, at, ONE, EDGE)
    if MASKED:
        scores = tl.where(seen(inputs.walk, at, BLOCK), scores, float("-inf"))
    # [BLOCK block_width]
    value_block = key_block if ONE else load_block(inputs.value, at, inputs.keys, BLOCK, VALUE_WIDTH, EDGE)
    weights = tl.exp2(scores if ONE else scores - shift[:, None])
    sums = lane_sums(weights)
    if FOLLOW and (not ROOM or tl.max(sums) > LIMIT):
        before, shift = shift, tl.maximum(shift, tl.max(scores, 1) + ROOM)
        kept = tl.exp2(before - shift)[:, None]
        total *= kept
        acc *= kept
        weights = tl.exp2(scores - shift[:, None])
        sums = lane_sums(weights)
    return dot(weights, value_block, acc), total + sums, shift


@triton.jit
def log2_scores(inputs, shift, key_block, at, ONE: tl.constexpr, EDGE: tl.constexpr):
    """log₂ κ_ij without row i's own term, [rows BLOCK]; ONE: with it, its shift, and −∞ past the end."""
    ROWS: tl.constexpr = inputs.row_query.shape[0]
    BLOCK: tl.constexpr = key_block.shape[0]
    column = at + tl.arange(0, BLOCK)
    if ONE:
        # [BLOCK]
        if inputs.key_squares is not None:
            norm = tl.load(inputs.key_squares + column)
        else:
            norm = half_norm(key_block, inputs.factor)
            if EDGE:
                norm = tl.where(column < inputs.keys, norm, float("inf"))
        scores = dot(inputs.row_query, tl.trans(key_block)) * inputs.factor - (shift[:, None] + norm[None, :])
    else:
        scores = dot(inputs.row_query, tl.trans(key_block))
        if inputs.key_squares is not None:
            # [BLOCK]
            squares = tl.load(inputs.key_squares + column)
            scores -= inputs.ratio * squares[None, :]
        scores *= inputs.factor
        if inputs.table is not None:
            # [rows BLOCK]
            scores += lag_scores(inputs.table, inputs.row_start, at, inputs.keys, ROWS, BLOCK)
    return scores


def squared_norms(tensor: Tensor, whole: int = 1, sigma: Tensor | None = None) -> Tensor:
    r"""The squared lengths $|x_i|^2$ ``[b h n]`` of the rows of ``[b h n d]``, as they are rounded.

    Zeros follow up to a multiple of ``whole``, so that blocks which end past n may be read without a mask.
    With a σ, ``[h]`` or ``[1]``, they are $|x_i|^2 \log_2 e / 2\sigma^2$, and ∞ follows: what lies there
    weighs nothing.
    """
    batch, heads, length, width = tensor.shape
    pitch = triton.cdiv(length, whole) * whole
    squares = statistics(tensor, batch, heads, pitch)
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


def limit(dtype: torch.dtype) -> float:
    """Up to this sum no weight overflows as a number of this type, nor a weighed value below 2³²."""
    return 2.0**15 if dtype == torch.float16 else 2.0**96


def room(dtype: torch.dtype) -> int:
    """How far a shift is put above the largest score, in octaves: in float16 half of what its numbers span.

    A weight of 2⁻¹³ has all its digits still, and a later one may be 2²⁸ times as large.
    """
    return 13 if dtype == torch.float16 else 0
