"""Smoothing of separate queries, keys and values, without the matrix of weights. Chapter 15 teaches it."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from gkalib.smoothing.fused.configs import config
from gkalib.smoothing.fused.lag_bias import lag_scores, padded
from gkalib.smoothing.fused.launch import (
    accumulator,
    block_width,
    dense_rows,
    launch,
    mask_arguments,
    precision,
    statistics_type,
    token_major,
)
from gkalib.smoothing.fused.norms import squared_norms
from gkalib.smoothing.fused.scores import (
    ALL,
    GIVEN,
    LOG2_E,
    head_start,
    load_block,
    loop_bounds,
    span_of,
    store_block,
)
from gkalib.smoothing.spans import Spans

LOWEST: tl.constexpr = tl.constexpr(-1e30)
"""Where a running maximum starts: so low that what it weighs vanishes, and yet no infinity to subtract."""


@triton.jit
def log2_scores(
    query, row_term, key_block, key_squares, table, row_start, at, keys, factor, half,
    BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr,
    EDGE: tl.constexpr,
):  # fmt: skip
    """log₂ κ_ij of one block, [BLOCK_ROWS BLOCK_COLUMNS]; row_term, key_squares and table may be None."""
    product = tl.dot(query, tl.trans(key_block), input_precision=PRECISION, out_dtype=ACC)
    scores = product * factor
    if table is not None:
        # [BLOCK_ROWS BLOCK_COLUMNS]
        scores += lag_scores(table, row_start, at, keys, BLOCK_ROWS, BLOCK_COLUMNS)
    if key_squares is not None:
        column = at + tl.arange(0, BLOCK_COLUMNS)
        # [BLOCK_COLUMNS]
        if EDGE:
            squares = tl.load(key_squares + column, mask=column < keys, other=0.0)
        else:
            squares = tl.load(key_squares + column)
        if row_term is not None:
            scores -= row_term[:, None] + (half * squares)[None, :]
        else:
            scores -= (half * squares)[None, :]
    return scores


@triton.jit
def smooth_block(
    acc, total, peak, query, row_term, key, value, key_squares, table, low, high, row_start, at, keys,
    key_stride, value_stride, factor, half, WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr,
    VALUE_WIDTH: tl.constexpr, BLOCK_VALUE: tl.constexpr, BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr, NORMALIZE: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr,
    EDGE: tl.constexpr,
):  # fmt: skip
    """Add one block of keys: acc = Σ_j 2^(s_ij − peak) v_j and total = Σ_j 2^(s_ij − peak)."""
    # [BLOCK_COLUMNS BLOCK_WIDTH]
    key_block = load_block(key, at, keys, key_stride, WIDTH, BLOCK_COLUMNS, BLOCK_WIDTH, EDGE)
    scores = log2_scores(
        query, row_term, key_block, key_squares, table, row_start, at, keys, factor, half,
        BLOCK_ROWS, BLOCK_COLUMNS, PRECISION, ACC, EDGE,
    )  # fmt: skip
    if EDGE:
        column = at + tl.arange(0, BLOCK_COLUMNS)[None, :]
        scores = tl.where((column >= low[:, None]) & (column < high[:, None]), scores, float("-inf"))
    # [BLOCK_COLUMNS BLOCK_VALUE]
    value_block = load_block(value, at, keys, value_stride, VALUE_WIDTH, BLOCK_COLUMNS, BLOCK_VALUE, EDGE)
    if NORMALIZE:
        higher = tl.maximum(peak, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        kept = tl.exp2(peak - higher)
        total = total * kept + tl.sum(weights, 1)
        acc *= kept[:, None]
        peak = higher
    else:
        weights = tl.exp2(scores)
    acc = tl.dot(weights.to(value_block.dtype), value_block, acc, input_precision=PRECISION, out_dtype=ACC)
    return acc, total, peak


@triton.jit
def smooth_forward_kernel(
    query, key, value, out, log_sum, key_squares, table, scale, norm, first, last, span_stride, left, right,
    heads, group, rows, keys, query_batch, query_head, query_stride, key_batch, key_head, key_stride,
    value_batch, value_head, value_stride, out_batch, out_head, out_stride, table_stride, KIND: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr, VALUE_WIDTH: tl.constexpr, BLOCK_VALUE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr, NORMALIZE: tl.constexpr, PRECISION: tl.constexpr,
    ACC: tl.constexpr,
):  # fmt: skip
    """out_i = Σ_j κ_ij v_j, with NORMALIZE over Σ_j κ_ij, for one block of rows i of one head."""
    blocks = tl.cdiv(rows, BLOCK_ROWS)
    which = tl.program_id(0) // blocks
    # The last rows of a causal mask see the most keys, so they start first.
    start = (blocks - 1 - tl.program_id(0) % blocks) * BLOCK_ROWS
    batch, head = which // heads, which % heads
    query += head_start(batch, head, query_batch, query_head)
    key += head_start(batch, head // group, key_batch, key_head)
    value += head_start(batch, head // group, value_batch, value_head)
    factor = tl.load(scale + head) * LOG2_E
    half = 0.0
    row = start + tl.arange(0, BLOCK_ROWS)
    if KIND == GIVEN:
        first += batch * span_stride
        last += batch * span_stride
    low, high = span_of(row, first, last, left, right, keys - rows, rows, keys, KIND)
    if KIND == ALL:
        outer_start, inner_start, inner_stop, outer_stop = 0, 0, keys // BLOCK_COLUMNS * BLOCK_COLUMNS, keys
    else:
        outer_start, inner_start, inner_stop, outer_stop = loop_bounds(
            low, high, row, rows, keys, BLOCK_COLUMNS
        )
    # [BLOCK_ROWS BLOCK_WIDTH]
    query_block = load_block(query, start, rows, query_stride, WIDTH, BLOCK_ROWS, BLOCK_WIDTH, True)
    row_term = None
    if key_squares is not None:
        key_squares += (batch * (heads // group) + head // group).to(tl.int64) * keys
        half = 0.5 * tl.load(norm + head) * LOG2_E
        if not NORMALIZE:
            wide = query_block.to(ACC)
            row_term = half * tl.sum(wide * wide, 1)
    if table is not None:
        table += head.to(tl.int64) * table_stride
    acc = tl.zeros([BLOCK_ROWS, BLOCK_VALUE], ACC)
    total = tl.zeros([BLOCK_ROWS], ACC)
    peak = tl.zeros([BLOCK_ROWS], ACC) + LOWEST
    before = (inner_start - outer_start) // BLOCK_COLUMNS
    after = tl.cdiv(tl.maximum(outer_stop - inner_stop, 0), BLOCK_COLUMNS)
    for k in tl.range(0, before + after):
        at = outer_start + k * BLOCK_COLUMNS
        at += tl.where(k < before, 0, inner_stop - inner_start)
        acc, total, peak = smooth_block(
            acc, total, peak, query_block, row_term, key, value, key_squares, table, low, high, start, at, keys,
            key_stride, value_stride, factor, half, WIDTH, BLOCK_WIDTH, VALUE_WIDTH, BLOCK_VALUE,
            BLOCK_ROWS, BLOCK_COLUMNS, NORMALIZE, PRECISION, ACC, True,
        )  # fmt: skip
    for at in tl.range(inner_start, inner_stop, BLOCK_COLUMNS):
        acc, total, peak = smooth_block(
            acc, total, peak, query_block, row_term, key, value, key_squares, table, low, high, start, at, keys,
            key_stride, value_stride, factor, half, WIDTH, BLOCK_WIDTH, VALUE_WIDTH, BLOCK_VALUE,
            BLOCK_ROWS, BLOCK_COLUMNS, NORMALIZE, PRECISION, ACC, False,
        )  # fmt: skip
    if NORMALIZE:
        some = total > 0
        total = tl.where(some, total, 1.0)  # a row that sees no key: its sum over values is zero already
        acc /= total[:, None]
        log_sum += which.to(tl.int64) * rows
        tl.store(log_sum + row, tl.where(some, peak + tl.log2(total), float("inf")), mask=row < rows)
    out += head_start(batch, head, out_batch, out_head)
    store_block(out, acc, start, rows, out_stride, VALUE_WIDTH, BLOCK_ROWS, BLOCK_VALUE)


def smooth_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: Tensor,
    norm: Tensor | None,
    table: Tensor | None,
    spans: Spans,
    normalize: bool,
) -> tuple[Tensor, Tensor]:
    r"""Values summed with the weights of a kernel of the dot product, the distance and the lag.

    $$\log\kappa_{ij} = s\, q_i^\top k_j - \tfrac{\nu}{2}\big(|q_i|^2 + |k_j|^2\big) + t_{i + m - n - j}, \qquad
    O_i = \sum_j \kappa_{ij} v_j \Big/ \sum_j \kappa_{ij}$$

    Args:
        query, key, value: ``[b h n d]``, ``[b g m d]`` and ``[b g m e]`` of one type; g divides h, and query
            head i reads key head i // (h / g).
        scale: s, ``[h]``, float32 (float64 for tensors of that type).
        norm: ν, likewise, or None for 0.
        table: t, ``[h n+m-1]`` likewise, with lag l at l + n − 1 less … m − 1 at the end; None for 0.
        spans: the keys that each query may see.
        normalize: whether the sum is divided; without it, O is the sum alone.

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
        key_squares=None if norm is None else squared_norms(key),
        table=table,
        scale=scale,
        norm=norm,
        **mask_arguments(spans, rows, keys),
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
        PRECISION=precision(query),
        ACC=accumulator(query),
    )
    return out, log_sum


def strides(name: str, tensor: Tensor) -> dict[str, int]:
    """Where a tensor's sequences, heads and rows start, as a program is told."""
    return {f"{name}_{axis}": tensor.stride(index) for index, axis in enumerate(("batch", "head", "stride"))}
