r"""Gradients of smoothing with separate queries, keys and values: a program for rows, another for columns.

With the weights $P_{ij}$ recomputed from the scores, $dP_{ij} = \langle dO_i, v_j\rangle$ and
$dS_{ij} = P_{ij}(dP_{ij} - \delta_i)$, $\delta_i = \langle dO_i, O_i\rangle$ under softmax and 0 for sums,

$$dq_i = s \sum_j dS_{ij} k_j - \nu q_i \sum_j dS_{ij},\quad
  dk_j = s \sum_i dS_{ij} q_i - \nu k_j \sum_i dS_{ij},\quad dv_j = \sum_i P_{ij}\, dO_i .$$

Under softmax every row of dS sums to 0. Each sum has one owner, which forms it in a fixed order without
atomics: seven products in place of five, and the same bits every time. Chapter 18 derives it.

Both programs walk as the forward one does: first the blocks that hold an edge of the mask, then the others.
Here whole blocks come last, since the other way about each product waits for the one before it.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from gkalib.smoothing.fused.cards import operation
from gkalib.smoothing.fused.configs import config
from gkalib.smoothing.fused.forward import squared_norms
from gkalib.smoothing.fused.lag_bias import (
    add_lags,
    end_lags,
    lag_scores,
    lag_scores_transposed,
    new_slices,
    padded,
    sum_slices,
)
from gkalib.smoothing.fused.launch import (
    dense_rows,
    derived,
    heads_of,
    launch,
    mask_of,
    numbers_of,
    statistics,
    token_major,
)
from gkalib.smoothing.fused.scores import (
    LOG2_E,
    at_the_end,
    block_width,
    dot,
    edge_block,
    head_of,
    lane_sums,
    load_block,
    load_vector,
    norm_of,
    scale_of,
    seen,
    sigma_of,
    store_block,
    sum_type,
    walk_of,
)
from gkalib.smoothing.spans import Spans


class Slices(NamedTuple):
    """Where programs add up lags: memory, how many slices a head has, and how long one is."""

    start: Any
    number: Any
    length: Any


def smooth_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    log_sum: Tensor,
    scale: Tensor | None,
    norm: Tensor | None,
    table: Tensor | None,
    spans: Spans,
    normalize: bool,
    want_table: bool,
    sigma: Tensor | None = None,
    want_numbers: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of ``smooth_forward``.

    Args:
        grad_out: of its result, ``[b h n e]``.
        query … table, spans, normalize: its arguments.
        out, log_sum: its results; unread without ``normalize``.
        want_table: whether the gradient of the table is formed too.
        sigma: as there.
        want_numbers: whether those of scale and norm, or σ, are.

    Returns:
        The gradients of query, key and value; each query's share ``[b h n]`` of the scale's or None, and each
        query's and key's ``[b h n+m]`` of the norm's or σ's or None; the table's ``[h n+m−1]`` or None.
    """
    batch, heads, rows, width = query.shape
    groups, columns, value_width = key.shape[1], key.shape[2], value.shape[3]
    grad_out, query, key, value, out = (dense_rows(each) for each in (grad_out, query, key, value, out))
    vector = statistics(query, batch, heads, rows)
    has_norm = norm is not None or sigma is not None
    of_scale = statistics(query, batch, heads, rows) if want_numbers and sigma is None else None
    of_norm = statistics(query, batch, heads, rows + columns) if want_numbers and has_norm else None
    table = None if table is None else padded(table)
    grad_query, grad_key, grad_value = (token_major(each) for each in (query, key, value))
    shared = {
        "grad_out": heads_of(grad_out),
        "query": heads_of(query),
        "key": heads_of(key),
        "value": heads_of(value),
        "log_sum": log_sum if normalize else None,
        "query_squares": squared_norms(query) if has_norm and not normalize else None,
        "key_squares": squared_norms(key) if has_norm else None,
        "delta": vector if normalize else None,
        "numbers": numbers_of(scale, norm, sigma),
        "table": table,
        "table_pitch": 0 if table is None else table.shape[1],
        "of_norm": of_norm,
        "heads": heads,
        "WIDTH": width,
        "VALUE_WIDTH": value_width,
    }
    wanted = {
        "width": block_width(max(width, value_width)),
        "dtype": query.dtype,
        "length": max(rows, columns),
        "device": query.device,
        "operation": operation("smooth", gaussian=has_norm, lags=table is not None, normalize=normalize),
    }
    own, slices = config("smooth_backward_query", lags=want_table, **wanted), None
    if want_table:
        own = replace(own, columns=min(own.rows, own.columns))
        slices = new_slices(query, columns, own)
    blocks = triton.cdiv(rows, own.rows)
    turns = blocks if slices is None else slices.shape[2]
    for first_block in range(0, blocks, turns):
        launch(
            smooth_backward_query_kernel,
            batch * heads * min(turns, blocks - first_block),
            own,
            out=heads_of(out),
            grad_query=heads_of(grad_query),
            of_scale=of_scale,
            slices=Slices(slices, turns, 0 if slices is None else slices.shape[3]),
            group=heads // groups,
            rows=rows,
            columns=columns,
            first_block=first_block,
            blocks=min(turns, blocks - first_block),
            mask=mask_of(spans, rows, columns, band=True),
            **shared,
        )
    grad_table = None if slices is None else sum_slices(slices, rows, columns, own)
    own = config("smooth_backward_key", lags=table is not None, **wanted)
    blocks = triton.cdiv(columns, own.rows)
    launch(
        smooth_backward_key_kernel,
        batch * groups * blocks,
        own,
        grad_key=heads_of(grad_key),
        grad_value=heads_of(grad_value),
        rows=columns,
        columns=rows,
        blocks=blocks,
        # Where loops begin at a known 0, as without a mask, ptxas puts waits between products.
        mask=mask_of(spans.inverse(rows, columns, derived), columns, rows, band=True),
        GROUP=heads // groups,
        **shared,
    )
    return grad_query, grad_key, grad_value, of_scale, of_norm, grad_table


@triton.jit
def smooth_backward_query_kernel(
    grad_out, query, key, value, out, grad_query, log_sum, query_squares, key_squares, delta, numbers, table,
    table_pitch, mask, of_scale, of_norm, slices, heads, group, rows, columns, first_block, blocks,
    WIDTH: tl.constexpr, VALUE_WIDTH: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr,
):  # fmt: skip
    """δ, dq and the lags' sums of one of the blocks of rows from first_block on, of one query head."""
    which, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    # The last rows of a causal mask see the most keys, so they start first.
    row_start = (first_block + blocks - 1 - block) * BLOCK_ROWS
    batch, head = which // heads, which % heads
    vector = which.to(tl.int64) * rows
    key = head_of(key, batch, head // group)
    value = head_of(value, batch, head // group)
    scale = scale_of(numbers, head)
    factor = scale * LOG2_E
    half = 0.0
    if key_squares is not None:
        norm = norm_of(numbers, head)
        half = 0.5 * norm * LOG2_E
        key_squares += (which // group).to(tl.int64) * columns
    if table is not None:
        table += head.to(tl.int64) * table_pitch
    row = row_start + tl.arange(0, BLOCK_ROWS)
    # [BLOCK_ROWS block_width]
    query = head_of(query, batch, head)
    own = load_block(query, row_start, rows, BLOCK_ROWS, WIDTH, True)
    # [BLOCK_ROWS block_width]
    own_grad = load_block(head_of(grad_out, batch, head), row_start, rows, BLOCK_ROWS, VALUE_WIDTH, True)
    ACC: tl.constexpr = sum_type(own.dtype)
    if log_sum is not None:
        log_sum += vector
        # [BLOCK_ROWS block_width]
        own_out = load_block(head_of(out, batch, head), row_start, rows, BLOCK_ROWS, VALUE_WIDTH, True)
        own_delta = tl.sum(own_grad.to(ACC) * own_out.to(ACC), 1)
        tl.store(delta + vector + row, own_delta, mask=row < rows)
    if query_squares is not None:
        query_squares += vector
    # [BLOCK_ROWS]
    own_terms = query_terms(log_sum, query_squares, row_start, rows, half, BLOCK_ROWS, True, ACC)
    walk = walk_of(row, mask, batch, rows, columns, BLOCK_COLUMNS)
    counts = (walk.edges, (walk.inner_stop - walk.inner_start) // BLOCK_COLUMNS)
    total = tl.zeros([BLOCK_ROWS, block_width(WIDTH)], ACC)
    row_sum = tl.zeros([BLOCK_ROWS, 4], ACC)
    if slices.start is not None:
        own_slice = slices.start + (which * slices.number + block).to(tl.int64) * slices.length
        lag = row_start + tl.cdiv(columns, BLOCK_COLUMNS) * BLOCK_COLUMNS
        if first_block == 0:  # a later launch adds to what is there
            for at in range(0, slices.length, BLOCK_COLUMNS):
                tl.store(
                    own_slice + at + tl.arange(0, BLOCK_COLUMNS),
                    tl.zeros([BLOCK_COLUMNS], ACC),
                )
    for part in tl.static_range(2):
        if slices.start is not None:
            tl.debug_barrier()  # a sum of the part before may be another thread's
            lag_sums = tl.zeros([BLOCK_ROWS // BLOCK_COLUMNS, BLOCK_COLUMNS], ACC)
        for k in range(counts[part]):
            at = edge_block(walk, k, BLOCK_COLUMNS) if part == 0 else walk.inner_start + k * BLOCK_COLUMNS
            # [BLOCK_COLUMNS block_width]
            keys = load_block(key, at, columns, BLOCK_COLUMNS, WIDTH, part == 0)
            # [BLOCK_COLUMNS block_width]
            values = load_block(value, at, columns, BLOCK_COLUMNS, VALUE_WIDTH, part == 0)
            key_terms = tl.zeros([BLOCK_COLUMNS], ACC)
            if key_squares is not None:
                # [BLOCK_COLUMNS]
                key_terms = load_vector(key_squares, at, columns, 0.0, BLOCK_COLUMNS, part == 0) * half
            bias = None
            if table is not None:
                # [BLOCK_ROWS BLOCK_COLUMNS]
                bias = lag_scores(table, row_start, at, columns, BLOCK_ROWS, BLOCK_COLUMNS)
            weights = weights_of(own, keys, factor, own_terms, key_terms, bias, walk, at, part == 0)
            grad = dot(own_grad, tl.trans(values))
            if log_sum is not None:
                grad -= own_delta[:, None]
            grad *= weights
            total = dot(grad, keys, total)
            if key_squares is not None and log_sum is None:
                row_sum += lane_sums(grad)
            if slices.start is not None:
                lag_sums = add_lags(own_slice, lag - at, grad, lag_sums, BLOCK_ROWS, BLOCK_COLUMNS)
                if part == 0:  # the next block may lie anywhere
                    end_lags(own_slice, lag - at, lag_sums, BLOCK_ROWS, BLOCK_COLUMNS)
                    lag_sums = tl.zeros_like(lag_sums)
    if slices.start is not None:
        last = lag - walk.inner_stop + BLOCK_COLUMNS
        end_lags(own_slice, last, lag_sums, BLOCK_ROWS, BLOCK_COLUMNS)
    # [BLOCK_ROWS block_width]
    own_query = at_the_end(own, query, row, rows, WIDTH, own.dtype == tl.float32)
    of_row = None
    if key_squares is not None and log_sum is None:
        of_row = tl.sum(row_sum, 1)
    end_queries(
        total, own_query, of_row, head_of(grad_query, batch, head), numbers, of_scale, of_norm, head,
        which.to(tl.int64), row_start, rows, columns, WIDTH,
    )  # fmt: skip


@triton.jit
def smooth_backward_key_kernel(
    grad_out, query, key, value, grad_key, grad_value, log_sum, query_squares, key_squares, delta, numbers,
    table, table_pitch, mask, of_norm, heads, rows, columns, blocks, GROUP: tl.constexpr,
    WIDTH: tl.constexpr, VALUE_WIDTH: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr,
):  # fmt: skip
    """dk and dv of a block of keys, its rows; its columns are the queries of every head that reads them."""
    which = tl.program_id(0) // blocks
    row_start = tl.program_id(0) % blocks * BLOCK_ROWS
    groups = heads // GROUP
    batch, group = which // groups, which % groups
    key, value = head_of(key, batch, group), head_of(value, batch, group)
    row = row_start + tl.arange(0, BLOCK_ROWS)
    walk = walk_of(row, mask, batch, rows, columns, BLOCK_COLUMNS)
    counts = (walk.edges, (walk.inner_stop - walk.inner_start) // BLOCK_COLUMNS)
    # [BLOCK_ROWS block_width]
    own = load_block(key, row_start, rows, BLOCK_ROWS, WIDTH, True)
    # [BLOCK_ROWS block_width]
    own_value = load_block(value, row_start, rows, BLOCK_ROWS, VALUE_WIDTH, True)
    ACC: tl.constexpr = sum_type(own.dtype)
    squares = tl.zeros([BLOCK_ROWS], ACC)
    if key_squares is not None:
        # [BLOCK_ROWS]
        squares = load_vector(
            key_squares + which.to(tl.int64) * rows,
            row_start,
            rows,
            0.0,
            BLOCK_ROWS,
            True,
        )
    of_key = tl.zeros([BLOCK_ROWS, block_width(WIDTH)], ACC)
    of_value = tl.zeros([BLOCK_ROWS, block_width(VALUE_WIDTH)], ACC)
    pull = tl.zeros([BLOCK_ROWS], ACC)
    for member in range(GROUP):
        head = group * GROUP + member
        head_index = (batch * heads + head).to(tl.int64)
        head_grad = head_of(grad_out, batch, head)
        head_query = head_of(query, batch, head)
        scale = scale_of(numbers, head)
        factor = scale * LOG2_E
        half = 0.0
        own_terms = squares
        head_log_sum, head_squares, head_delta, head_table = (
            log_sum,
            query_squares,
            delta,
            table,
        )
        if key_squares is not None:
            norm = norm_of(numbers, head)
            half = 0.5 * norm * LOG2_E
            own_terms = squares * half
        if query_squares is not None:
            head_squares = query_squares + head_index * columns
        if log_sum is not None:
            head_log_sum = log_sum + head_index * columns
            head_delta = delta + head_index * columns
        if table is not None:
            head_table = table + head.to(tl.int64) * table_pitch
        key_sum = tl.zeros([BLOCK_ROWS, 4], ACC)
        for part in tl.static_range(2):
            for k in range(counts[part]):
                at = edge_block(walk, k, BLOCK_COLUMNS) if part == 0 else walk.inner_start + k * BLOCK_COLUMNS
                # [BLOCK_COLUMNS block_width]
                queries = load_block(head_query, at, columns, BLOCK_COLUMNS, WIDTH, part == 0)
                # [BLOCK_COLUMNS block_width]
                grads = load_block(head_grad, at, columns, BLOCK_COLUMNS, VALUE_WIDTH, part == 0)
                # [BLOCK_COLUMNS]
                terms = query_terms(
                    head_log_sum,
                    head_squares,
                    at,
                    columns,
                    half,
                    BLOCK_COLUMNS,
                    part == 0,
                    ACC,
                )
                bias = None
                if table is not None:
                    # [BLOCK_ROWS BLOCK_COLUMNS]
                    bias = lag_scores_transposed(head_table, at, row_start, rows, BLOCK_COLUMNS, BLOCK_ROWS)
                weights = weights_of(own, queries, factor, own_terms, terms, bias, walk, at, part == 0)
                of_value = dot(weights, grads, of_value)
                grad = dot(own_value, tl.trans(grads))
                if log_sum is not None:
                    # [BLOCK_COLUMNS]
                    grad -= load_vector(head_delta, at, columns, 0.0, BLOCK_COLUMNS, part == 0)[None, :]
                grad *= weights
                if key_squares is not None:
                    key_sum += lane_sums(grad)
                of_key = dot(grad * scale if GROUP > 1 else grad, queries, of_key)
        if key_squares is not None:
            of_column = tl.sum(key_sum, 1)
            pull += norm * of_column
            if of_norm is not None:
                by_norm = -0.5 * of_column * squares
                if numbers.sigma is not None:
                    by_norm *= -2 * norm / sigma_of(numbers, head)
                own_share = of_norm + head_index * (rows + columns) + columns
                tl.store(own_share + row, by_norm, mask=row < rows)
    if GROUP == 1:
        of_key *= scale_of(numbers, group)
    if key_squares is not None:
        # [BLOCK_ROWS block_width]
        again = own.dtype == tl.float32 or WIDTH > 64
        of_key -= at_the_end(own, key, row, rows, WIDTH, again) * pull[:, None]
    store_block(head_of(grad_key, batch, group), of_key, row_start, rows, WIDTH)
    store_block(head_of(grad_value, batch, group), of_value, row_start, rows, VALUE_WIDTH)


@triton.jit
def end_queries(
    total, own, row_sum, grad_query, numbers, of_scale, of_norm, head, sequence, start, rows, columns,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """Store dq_i = s Σ_j dS_ij k_j − ν q_i Σ_j dS_ij, and a query's share of the gradients of s and ν, or σ.

    The first sum is ``total``; without ``row_sum`` the second is zero.
    """
    row = start + tl.arange(0, total.shape[0])
    by_scale = tl.sum(own * total, 1)
    if of_scale is not None:
        tl.store(of_scale + sequence * rows + row, by_scale, mask=row < rows)
    total *= scale_of(numbers, head)
    by_norm = tl.zeros_like(by_scale)
    if row_sum is not None:
        total -= own * (norm_of(numbers, head) * row_sum)[:, None]
        by_norm = -0.5 * row_sum * tl.sum(own * own, 1)
    if of_norm is not None:
        if numbers.sigma is not None:
            by_norm = -2 * scale_of(numbers, head) / sigma_of(numbers, head) * (by_scale + by_norm)
        tl.store(of_norm + sequence * rows + sequence * columns + row, by_norm, mask=row < rows)
    store_block(grad_query, total, start, rows, WIDTH)


@triton.jit
def query_terms(
    log_sum, query_squares, start, length, half, BLOCK: tl.constexpr, EDGE: tl.constexpr, ACC: tl.constexpr
):  # fmt: skip
    """What a query's scores lose, [BLOCK]: the logarithm of their sum, or ν/2 its own squared length."""
    if log_sum is not None:
        return load_vector(log_sum, start, length, float("inf"), BLOCK, EDGE)
    elif query_squares is not None:
        return load_vector(query_squares, start, length, 0.0, BLOCK, EDGE) * half
    else:
        return tl.zeros([BLOCK], ACC)


@triton.jit
def weights_of(own, other, factor, own_terms, other_terms, bias, walk, at, EDGE: tl.constexpr):
    """The weights of own rows with others from ``at`` on; EDGE leaves out what a row may not see."""
    score = dot(own, tl.trans(other)) * factor
    if bias is not None:
        score += bias
    score = score - own_terms[:, None] - other_terms[None, :]
    if EDGE:
        score = tl.where(seen(walk, at, other.shape[0]), score, float("-inf"))
    return tl.exp2(score)
