"""Smoothing of separate queries, keys and values, without the matrix of weights. Chapter 15 teaches it."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from gkalib.smoothing.fused.configs import config
from gkalib.smoothing.fused.lag_bias import PAD, lag_scores, padded
from gkalib.smoothing.fused.launch import (
    accumulator,
    block_width,
    dense_rows,
    launch,
    mask_arguments,
    number_arguments,
    precision,
    statistics_type,
    strides,
    token_major,
)
from gkalib.smoothing.fused.norms import squared_norms
from gkalib.smoothing.fused.scores import (
    ALL,
    BAND,
    GIVEN,
    LOG2_E,
    block_loops,
    edge_block,
    head_number,
    head_start,
    lane_sums,
    load_block,
    store_block,
)
from gkalib.smoothing.spans import Spans

LOWEST: tl.constexpr = tl.constexpr(-1e30)
"""Where a running maximum starts: so low that what it weighs vanishes, and yet no infinity to subtract."""

WHOLE = 256
"""Norms of keys are kept for a multiple of so many: no block is longer."""


@triton.jit
def log2_scores(
    query_block, key_block, key_squares, table, row_start, at, keys, factor, ratio, BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """log₂ κ_ij without row i's own term, factor (q_i·k_j − ratio |k_j|²) + t, [BLOCK_ROWS BLOCK_COLUMNS]."""
    scores = tl.dot(query_block, tl.trans(key_block), input_precision=PRECISION, out_dtype=ACC)
    if key_squares is not None:
        # [BLOCK_COLUMNS]
        squares = tl.load(key_squares + at + tl.arange(0, BLOCK_COLUMNS))
        scores -= ratio * squares[None, :]
    scores *= factor
    if table is not None:
        # [BLOCK_ROWS BLOCK_COLUMNS]
        scores += lag_scores(table, row_start, at, keys, BLOCK_ROWS, BLOCK_COLUMNS)
    return scores


@triton.jit
def own_scores(
    query_block, key, key_stride, key_squares, table, row, low, high, shift, keys, factor, ratio,
    WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """The score of each row with the one key on its own place, or the nearest that it sees, [BLOCK_ROWS]."""
    own = tl.minimum(tl.maximum(row + shift, low), high - 1)
    column = tl.arange(0, BLOCK_WIDTH)
    address = key + own.to(tl.int64)[:, None] * key_stride + column[None, :]
    sees = low < high
    # [BLOCK_ROWS BLOCK_WIDTH]
    own_key = tl.load(address, mask=sees[:, None] & (column < WIDTH)[None, :], other=0.0).to(ACC)
    scores = tl.sum(query_block.to(ACC) * own_key, 1)
    if key_squares is not None:
        scores -= ratio * tl.sum(own_key * own_key, 1)
    scores *= factor
    if table is not None:
        # [BLOCK_ROWS]
        scores += tl.load(table + (row - own + keys - 1 + PAD), mask=sees, other=0.0)
    return tl.maximum(scores, LOWEST)


@triton.jit
def smooth_block(
    acc, total, shift, inputs, at, WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr,
    VALUE_WIDTH: tl.constexpr, BLOCK_VALUE: tl.constexpr, BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr, FOLLOW: tl.constexpr,
    LIMIT: tl.constexpr, ROOM: tl.constexpr, EDGE: tl.constexpr,
):  # fmt: skip
    """Add a block of keys to acc = Σ_j 2^(s_ij − shift_i) v_j and total = Σ_j 2^(s_ij − shift_i), in parts.

    FOLLOW lets the shift grow with the largest score so far; to ROOM above it, where there is ROOM, and then
    only for a block of which a part sums to more than LIMIT. EDGE leaves out what a row may not see.
    """
    query_block, key, value, key_squares, table, factor, ratio, low, high, row_start, keys, strides = inputs
    # [BLOCK_COLUMNS BLOCK_WIDTH]
    key_block = load_block(key, at, keys, strides[0], WIDTH, BLOCK_COLUMNS, BLOCK_WIDTH, EDGE)
    scores = log2_scores(
        query_block, key_block, key_squares, table, row_start, at, keys, factor, ratio, BLOCK_ROWS,
        BLOCK_COLUMNS, PRECISION, ACC,
    )  # fmt: skip
    if EDGE:
        column = at + tl.arange(0, BLOCK_COLUMNS)[None, :]
        scores = tl.where((column >= low[:, None]) & (column < high[:, None]), scores, float("-inf"))
    # [BLOCK_COLUMNS BLOCK_VALUE]
    value_block = load_block(value, at, keys, strides[1], VALUE_WIDTH, BLOCK_COLUMNS, BLOCK_VALUE, EDGE)
    weights = tl.exp2(scores - shift[:, None])
    sums = lane_sums(weights, BLOCK_ROWS, BLOCK_COLUMNS)
    if FOLLOW and (not ROOM or tl.max(sums) > LIMIT):
        before, shift = shift, tl.maximum(shift, tl.max(scores, 1) + ROOM)
        kept = tl.exp2(before - shift)[:, None]
        total *= kept
        acc *= kept
        weights = tl.exp2(scores - shift[:, None])
        sums = lane_sums(weights, BLOCK_ROWS, BLOCK_COLUMNS)
    total += sums
    acc = tl.dot(weights.to(value_block.dtype), value_block, acc, input_precision=PRECISION, out_dtype=ACC)
    return acc, total, shift


@triton.jit
def smooth_forward_kernel(
    query, key, value, out, log_sum, key_squares, norm_pitch, table, scale, norm, number_step, first, last,
    span_stride, left, right, heads, group, rows, keys, query_strides, key_strides, value_strides,
    out_strides, table_stride, KIND: tl.constexpr, WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr,
    VALUE_WIDTH: tl.constexpr, BLOCK_VALUE: tl.constexpr, BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr, OF_SIGMA: tl.constexpr, NORMALIZE: tl.constexpr, FOLLOW: tl.constexpr,
    LIMIT: tl.constexpr, ROOM: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """out_i = Σ_j κ_ij v_j, with NORMALIZE over Σ_j κ_ij, for one block of rows i of one head."""
    blocks = tl.cdiv(rows, BLOCK_ROWS)
    which = tl.program_id(0) // blocks
    # The last rows of a causal mask see the most keys, so they start first.
    start = (blocks - 1 - tl.program_id(0) % blocks) * BLOCK_ROWS
    batch, head = which // heads, which % heads
    query += head_start(batch, head, query_strides)
    key += head_start(batch, head // group, key_strides)
    value += head_start(batch, head // group, value_strides)
    factor = head_number(scale, head, number_step, OF_SIGMA) * LOG2_E
    ratio = 0.0
    if key_squares is not None:
        key_squares += (batch * (heads // group) + head // group).to(tl.int64) * norm_pitch
        factor = tl.where(factor == 0, 1e-30, factor)  # norms without a product
        ratio = 0.5 * LOG2_E * head_number(norm, head, number_step, OF_SIGMA) / factor
    if table is not None:
        table += head.to(tl.int64) * table_stride
    if KIND == GIVEN:
        first += batch * span_stride
        last += batch * span_stride
    row = start + tl.arange(0, BLOCK_ROWS)
    low, high, inner_start, inner_stop, edge, edges = block_loops(
        row, first, last, left, right, keys - rows, rows, keys, KIND, BLOCK_COLUMNS
    )
    # [BLOCK_ROWS BLOCK_WIDTH]
    query_block = load_block(query, start, rows, query_strides[2], WIDTH, BLOCK_ROWS, BLOCK_WIDTH, True)
    if NORMALIZE:
        # Any shift near a row's largest score will do, and its own key's score is often near enough.
        shift = own_scores(
            query_block, key, key_strides[2], key_squares, table, row, low, high, keys - rows, keys, factor,
            ratio, WIDTH, BLOCK_WIDTH, ACC,
        )  # fmt: skip
        if ROOM:
            shift += ROOM
    elif key_squares is not None:
        wide = query_block.to(ACC)
        shift = factor * ratio * tl.sum(wide * wide, 1)
    else:
        shift = tl.zeros([BLOCK_ROWS], ACC)
    inputs = (
        query_block, key, value, key_squares, table, factor, ratio, low, high, start, keys,
        (key_strides[2], value_strides[2]),
    )  # fmt: skip
    acc = tl.zeros([BLOCK_ROWS, BLOCK_VALUE], ACC)
    total = tl.zeros([BLOCK_ROWS, 4], ACC)
    for k in tl.range(0, edges):
        at = edge_block(k, edge, inner_start, inner_stop, BLOCK_COLUMNS)
        acc, total, shift = smooth_block(
            acc, total, shift, inputs, at, WIDTH, BLOCK_WIDTH, VALUE_WIDTH, BLOCK_VALUE, BLOCK_ROWS,
            BLOCK_COLUMNS, PRECISION, ACC, FOLLOW, LIMIT, ROOM, True,
        )  # fmt: skip
    for at in tl.range(inner_start, inner_stop, BLOCK_COLUMNS):
        acc, total, shift = smooth_block(
            acc, total, shift, inputs, at, WIDTH, BLOCK_WIDTH, VALUE_WIDTH, BLOCK_VALUE, BLOCK_ROWS,
            BLOCK_COLUMNS, PRECISION, ACC, FOLLOW, LIMIT, ROOM, False,
        )  # fmt: skip
    if NORMALIZE and not FOLLOW and tl.max(tl.where(row < rows, tl.sum(total, 1), 0.0)) > LIMIT:
        # A key was far nearer than the row's own: again, with a shift that follows the largest score.
        acc = tl.zeros([BLOCK_ROWS, BLOCK_VALUE], ACC)
        total = tl.zeros([BLOCK_ROWS, 4], ACC)
        shift = tl.zeros([BLOCK_ROWS], ACC) + LOWEST
        first_block = tl.min(tl.where(low < high, low, keys)) // BLOCK_COLUMNS * BLOCK_COLUMNS
        for at in tl.range(first_block, tl.max(high), BLOCK_COLUMNS):
            acc, total, shift = smooth_block(
                acc, total, shift, inputs, at, WIDTH, BLOCK_WIDTH, VALUE_WIDTH, BLOCK_VALUE, BLOCK_ROWS,
                BLOCK_COLUMNS, PRECISION, ACC, True, LIMIT, ROOM, True,
            )  # fmt: skip
    if NORMALIZE:
        all = tl.sum(total, 1)
        sees = all > 0
        all = tl.where(sees, all, 1.0)  # a row that sees no key: its sum over values is zero already
        acc /= all[:, None]
        log_sum += which.to(tl.int64) * rows
        tl.store(log_sum + row, tl.where(sees, shift + tl.log2(all), float("inf")), mask=row < rows)
    out += head_start(batch, head, out_strides)
    store_block(out, acc, start, rows, out_strides[2], VALUE_WIDTH, BLOCK_ROWS, BLOCK_VALUE)


def smooth_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: Tensor | None,
    norm: Tensor | None,
    table: Tensor | None,
    spans: Spans,
    normalize: bool,
    sigma: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Values summed with the weights of a kernel of the dot product, the distance and the lag.

    $$\log\kappa_{ij} = s\, q_i^\top k_j - \tfrac{\nu}{2}\big(|q_i|^2 + |k_j|^2\big) + t_{i + m - n - j},
    \qquad O_i = \sum_j \kappa_{ij} v_j \Big/ \sum_j \kappa_{ij}$$

    Before it is raised a score is shifted by that of the row's own key: no maximum need be followed. In
    float16 the shift grows where a block's sum is above ``limit``, which float16 reaches; in wider ranges a
    block of rows that ends above it is done again with a shift that grows.

    Args:
        query, key, value: ``[b h n d]``, ``[b g m d]`` and ``[b g m e]`` of one type; g divides h, and query
            head i reads key head i // (h / g).
        scale: s, ``[h]``, float32 (float64 for tensors of that type).
        norm: ν, likewise, or None for 0.
        table: t, ``[h n+m-1]`` likewise, with lag l at l + n − 1 less … m − 1 at the end; None for 0.
        spans: the keys that each query may see.
        normalize: whether the sum is divided; without it, O is the sum alone.
        sigma: σ, ``[h]`` or ``[1]`` likewise, in place of scale and norm where both are σ⁻².

    Returns:
        O ``[b h n e]``, and the base-2 logarithm of each row's sum without its term in |q_i|², ``[b h n]``
        (empty without ``normalize``). A row that sees no key is zero, and its logarithm +∞, so that the
        weights 2^(score − logarithm) are zero too.
    """
    batch, heads, rows, width = query.shape
    groups, keys, value_width = key.shape[1], key.shape[2], value.shape[3]
    query, key, value = dense_rows(query), dense_rows(key), dense_rows(value)
    statistics = statistics_type(query)
    out = token_major(query, value_width)
    log_sum = query.new_empty((batch, heads, rows) if normalize else (0,), dtype=statistics)
    table = None if table is None else padded(table)
    key_squares = None if norm is None and sigma is None else squared_norms(key, WHOLE)
    mask = mask_arguments(spans, rows, keys)
    if table is not None and mask["KIND"] == ALL.value:
        # Compiled for a band, here as wide as all: otherwise ptxas makes the products wait for one another.
        mask["KIND"] = BAND.value
    block = config(
        "smooth_forward",
        width=max(block_width(width), block_width(value_width)),
        dtype=query.dtype,
        masked=not spans.all(rows, keys),
        length=keys,
        lags=table is not None,
    )
    launch(
        smooth_forward_kernel,
        triton.cdiv(rows, block.rows) * batch * heads,
        block,
        query=query,
        key=key,
        value=value,
        out=out,
        log_sum=log_sum,
        key_squares=key_squares,
        norm_pitch=0 if key_squares is None else key_squares.shape[2],
        table=table,
        **number_arguments(scale, norm, sigma),
        **mask,
        heads=heads,
        group=heads // groups,
        rows=rows,
        keys=keys,
        **strides("query", query),
        **strides("key", key),
        **strides("value", value),
        **strides("out", out),
        table_stride=0 if table is None else table.stride(0),
        WIDTH=width,
        BLOCK_WIDTH=block_width(width),
        VALUE_WIDTH=value_width,
        BLOCK_VALUE=block_width(value_width),
        NORMALIZE=normalize,
        FOLLOW=normalize and query.dtype == torch.float16,
        LIMIT=limit(query.dtype),
        ROOM=room(query.dtype),
        PRECISION=precision(query),
        ACC=accumulator(query),
    )
    return out, log_sum


def limit(dtype: torch.dtype) -> float:
    """Up to this sum no weight overflows as a number of this type, nor a weighed value below 2³²."""
    return 2.0**15 if dtype == torch.float16 else 2.0**96


def room(dtype: torch.dtype) -> int:
    """How far a shift is put above the largest score, in octaves: in float16 half of what its numbers span.

    A weight of 2⁻¹³ has all its digits still, and a later one may be 2²⁸ times as large.
    """
    return 13 if dtype == torch.float16 else 0
