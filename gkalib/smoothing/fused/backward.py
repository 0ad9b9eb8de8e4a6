r"""Gradients of smoothing with separate queries, keys and values: a program for rows, another for columns.

With the weights $P_{ij}$ recomputed from the scores, $dP_{ij} = \langle dO_i, v_j\rangle$ and
$dS_{ij} = P_{ij}(dP_{ij} - \delta_i)$, $\delta_i = \langle dO_i, O_i\rangle$ under softmax and 0 for sums,

$$dq_i = s \sum_j dS_{ij} k_j - \nu q_i \sum_j dS_{ij},\quad
  dk_j = s \sum_i dS_{ij} q_i - \nu k_j \sum_i dS_{ij},\quad dv_j = \sum_i P_{ij}\, dO_i .$$

Under softmax every row of dS sums to 0. Each sum has one owner, which forms it in a fixed order without
atomics: seven products in place of five, and the same bits every time. Chapter 16 derives it.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from gkalib.smoothing.fused.configs import Config, config
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
    BAND,
    GIVEN,
    LOG2_E,
    block_loops,
    edge_block,
    head_number,
    head_start,
    lane_sums,
    load_block,
    load_vector,
    store_block,
)
from gkalib.smoothing.spans import Spans


@triton.jit
def query_terms(
    terms, start, length, half, BLOCK: tl.constexpr, EDGE: tl.constexpr, NORMALIZE: tl.constexpr,
    ACC: tl.constexpr,
):  # fmt: skip
    """What a query's scores lose, [BLOCK]: the logarithm of their sum, or half its own squared length."""
    if NORMALIZE:
        return load_vector(terms, start, length, float("inf"), BLOCK, EDGE)
    elif terms is not None:
        return load_vector(terms, start, length, 0.0, BLOCK, EDGE) * half
    else:
        return tl.zeros([BLOCK], ACC)


@triton.jit
def weights_of(
    own, other, factor, own_terms, other_terms, bias, low, high, start, BLOCK: tl.constexpr,
    EDGE: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """The weights of a block's own rows with BLOCK others from start, each row's [low, high) of them."""
    score = tl.dot(own, tl.trans(other), input_precision=PRECISION, out_dtype=ACC) * factor
    if bias is not None:
        score += bias
    score = score - own_terms[:, None] - other_terms[None, :]
    if EDGE:
        index = (start + tl.arange(0, BLOCK))[None, :]
        score = tl.where((low[:, None] <= index) & (index < high[:, None]), score, float("-inf"))
    return tl.exp2(score)


@triton.jit
def smooth_backward_query_kernel(
    grad_out, query, key, value, out, terms, key_squares, scale, norm, number_step, table, first, last,
    delta, grad_query, of_scale, of_norm, slices, heads, group, rows, columns, first_block, blocks, turns,
    table_length, slice_length, left, right, span_stride, grad_out_strides,
    query_strides, key_strides, value_strides, out_strides, grad_strides, OF_SIGMA: tl.constexpr,
    WIDTH: tl.constexpr, VALUE_WIDTH: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr, BLOCK_VALUE: tl.constexpr, KIND: tl.constexpr, NORMALIZE: tl.constexpr,
    PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """δ, dq and the lags' sums of one of the blocks of rows from first_block on, of one query head."""
    which, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    # The last rows of a causal mask see the most keys, so they start first.
    row_start = (first_block + blocks - 1 - block) * BLOCK_ROWS
    batch, head = which // heads, which % heads
    grad_out += head_start(batch, head, grad_out_strides)
    query += head_start(batch, head, query_strides)
    key += head_start(batch, head // group, key_strides)
    value += head_start(batch, head // group, value_strides)
    grad_query += head_start(batch, head, grad_strides)
    vector = which.to(tl.int64) * rows
    natural = head_number(scale, head, number_step, OF_SIGMA)
    factor = natural * LOG2_E
    half = 0.0
    if norm is not None:
        rate = head_number(norm, head, number_step, OF_SIGMA)
        half = 0.5 * rate * LOG2_E
        key_squares += (which // group).to(tl.int64) * columns
    if terms is not None:
        terms += vector
    if NORMALIZE:
        out += head_start(batch, head, out_strides)
    if table is not None:
        table += head.to(tl.int64) * table_length
    if slices is not None:
        slices += (which * turns + block).to(tl.int64) * slice_length
    if KIND == GIVEN:
        first += batch.to(tl.int64) * span_stride
        last += batch.to(tl.int64) * span_stride
    row = row_start + tl.arange(0, BLOCK_ROWS)
    # [BLOCK_ROWS BLOCK_WIDTH]
    own = load_block(query, row_start, rows, query_strides[2], WIDTH, BLOCK_ROWS, BLOCK_WIDTH, True)
    # [BLOCK_ROWS BLOCK_VALUE]
    own_grad = load_block(
        grad_out, row_start, rows, grad_out_strides[2], VALUE_WIDTH, BLOCK_ROWS, BLOCK_VALUE, True
    )
    if NORMALIZE:
        # [BLOCK_ROWS BLOCK_VALUE]
        own_out = load_block(out, row_start, rows, out_strides[2], VALUE_WIDTH, BLOCK_ROWS, BLOCK_VALUE, True)
        own_delta = tl.sum(own_grad.to(ACC) * own_out.to(ACC), 1)
        tl.store(delta + vector + row, own_delta, mask=row < rows)
    # [BLOCK_ROWS]
    own_terms = query_terms(terms, row_start, rows, half, BLOCK_ROWS, True, NORMALIZE, ACC)
    low, high, inner_start, inner_stop, edge, edges = block_loops(
        row, first, last, left, right, columns - rows, rows, columns, KIND, BLOCK_COLUMNS
    )
    # Whole blocks come last: the other way about, each product waits for the one before it.
    counts = (edges, (inner_stop - inner_start) // BLOCK_COLUMNS)
    total = tl.zeros([BLOCK_ROWS, BLOCK_WIDTH], ACC)
    row_sum = tl.zeros([BLOCK_ROWS, 4], ACC)
    for part in tl.static_range(2):
        if slices is not None:
            tl.debug_barrier()  # a sum of the part before may be another thread's
            lag = row_start + tl.cdiv(columns, BLOCK_COLUMNS) * BLOCK_COLUMNS
            lag_sums = tl.zeros([BLOCK_ROWS // BLOCK_COLUMNS, BLOCK_COLUMNS], ACC)
        for k in range(counts[part]):
            at = inner_start + k * BLOCK_COLUMNS
            if part == 0:
                at = edge_block(k, edge, inner_start, inner_stop, BLOCK_COLUMNS)
            # [BLOCK_COLUMNS BLOCK_WIDTH]
            keys = load_block(key, at, columns, key_strides[2], WIDTH, BLOCK_COLUMNS, BLOCK_WIDTH, part == 0)
            # [BLOCK_COLUMNS BLOCK_VALUE]
            values = load_block(
                value, at, columns, value_strides[2], VALUE_WIDTH, BLOCK_COLUMNS, BLOCK_VALUE, part == 0
            )
            key_terms = tl.zeros([BLOCK_COLUMNS], ACC)
            if norm is not None:
                # [BLOCK_COLUMNS]
                key_terms = load_vector(key_squares, at, columns, 0.0, BLOCK_COLUMNS, part == 0) * half
            bias = None
            if table is not None:
                # [BLOCK_ROWS BLOCK_COLUMNS]
                bias = lag_scores(table, row_start, at, columns, BLOCK_ROWS, BLOCK_COLUMNS)
            weights = weights_of(
                own, keys, factor, own_terms, key_terms, bias, low, high, at, BLOCK_COLUMNS, part == 0,
                PRECISION, ACC,
            )  # fmt: skip
            grad = tl.dot(own_grad, tl.trans(values), input_precision=PRECISION, out_dtype=ACC)
            if NORMALIZE:
                grad -= own_delta[:, None]
            grad *= weights
            total = tl.dot(grad.to(keys.dtype), keys, total, input_precision=PRECISION, out_dtype=ACC)
            if norm is not None and not NORMALIZE:
                row_sum += lane_sums(grad, BLOCK_ROWS, BLOCK_COLUMNS)
            if slices is not None:
                lag_sums = add_lags(slices, lag - at, grad, lag_sums, BLOCK_ROWS, BLOCK_COLUMNS)
                if part == 0:  # the next block may lie anywhere
                    end_lags(slices, lag - at, lag_sums, BLOCK_ROWS, BLOCK_COLUMNS)
                    lag_sums = tl.zeros_like(lag_sums)
    if slices is not None:
        end_lags(slices, lag - inner_stop + BLOCK_COLUMNS, lag_sums, BLOCK_ROWS, BLOCK_COLUMNS)
    by_scale = tl.sum(own.to(ACC) * total, 1)
    if of_scale is not None:
        tl.store(of_scale + vector + row, by_scale, mask=row < rows)
    total *= natural
    by_norm = tl.zeros([BLOCK_ROWS], ACC)
    if norm is not None and not NORMALIZE:
        of_row = tl.sum(row_sum, 1)
        total -= own.to(ACC) * (rate * of_row)[:, None]
        by_norm = -0.5 * of_row * tl.sum(own.to(ACC) * own.to(ACC), 1)
    if of_norm is not None:
        if OF_SIGMA:
            by_norm = -2 * rate / head_number(norm, head, number_step) * (by_scale + by_norm)
        tl.store(of_norm + vector + which.to(tl.int64) * columns + row, by_norm, mask=row < rows)
    store_block(grad_query, total, row_start, rows, grad_strides[2], WIDTH, BLOCK_ROWS, BLOCK_WIDTH)


@triton.jit
def smooth_backward_key_kernel(
    grad_out, query, key, value, terms, key_squares, scale, norm, number_step, table, first, last, delta,
    grad_key, grad_value, of_norm, heads, rows, columns, blocks, table_length, left, right, span_stride,
    grad_out_strides, query_strides, key_strides, value_strides, grad_key_strides, grad_value_strides,
    OF_SIGMA: tl.constexpr, GROUP: tl.constexpr, WIDTH: tl.constexpr, VALUE_WIDTH: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr, BLOCK_WIDTH: tl.constexpr,
    BLOCK_VALUE: tl.constexpr, KIND: tl.constexpr, NORMALIZE: tl.constexpr, PRECISION: tl.constexpr,
    ACC: tl.constexpr,
):  # fmt: skip
    """dk and dv of a block of keys, its rows; its columns are the queries of every head that reads them."""
    which = tl.program_id(0) // blocks
    row_start = tl.program_id(0) % blocks * BLOCK_ROWS
    groups = heads // GROUP
    batch, group = which // groups, which % groups
    key += head_start(batch, group, key_strides)
    value += head_start(batch, group, value_strides)
    grad_key += head_start(batch, group, grad_key_strides)
    grad_value += head_start(batch, group, grad_value_strides)
    if KIND == GIVEN:
        first += batch.to(tl.int64) * span_stride
        last += batch.to(tl.int64) * span_stride
    row = row_start + tl.arange(0, BLOCK_ROWS)
    low, high, inner_start, inner_stop, edge, edges = block_loops(
        row, first, last, left, right, columns - rows, rows, columns, KIND, BLOCK_COLUMNS
    )
    # Whole blocks come last: the other way about, each product waits for the one before it.
    counts = (edges, (inner_stop - inner_start) // BLOCK_COLUMNS)
    # [BLOCK_ROWS BLOCK_WIDTH]
    own = load_block(key, row_start, rows, key_strides[2], WIDTH, BLOCK_ROWS, BLOCK_WIDTH, True)
    # [BLOCK_ROWS BLOCK_VALUE]
    own_value = load_block(
        value, row_start, rows, value_strides[2], VALUE_WIDTH, BLOCK_ROWS, BLOCK_VALUE, True
    )
    squares = tl.zeros([BLOCK_ROWS], ACC)
    if norm is not None:
        # [BLOCK_ROWS]
        squares = load_vector(key_squares + which.to(tl.int64) * rows, row_start, rows, 0.0, BLOCK_ROWS, True)
    of_key = tl.zeros([BLOCK_ROWS, BLOCK_WIDTH], ACC)
    of_value = tl.zeros([BLOCK_ROWS, BLOCK_VALUE], ACC)
    pulled = tl.zeros([BLOCK_ROWS], ACC)
    for member in range(GROUP):
        head = group * GROUP + member
        head_index = (batch * heads + head).to(tl.int64)
        head_grad = grad_out + head_start(batch, head, grad_out_strides)
        head_query = query + head_start(batch, head, query_strides)
        natural = head_number(scale, head, number_step, OF_SIGMA)
        factor = natural * LOG2_E
        half = 0.0
        own_terms = squares
        head_terms, head_delta, head_table = terms, delta, table
        if norm is not None:
            rate = head_number(norm, head, number_step, OF_SIGMA)
            half = 0.5 * rate * LOG2_E
            own_terms = squares * half
        if terms is not None:
            head_terms = terms + head_index * columns
        if NORMALIZE:
            head_delta = delta + head_index * columns
        if table is not None:
            head_table = table + head.to(tl.int64) * table_length
        key_sum = tl.zeros([BLOCK_ROWS, 4], ACC)
        for part in tl.static_range(2):
            for k in range(counts[part]):
                at = inner_start + k * BLOCK_COLUMNS
                if part == 0:
                    at = edge_block(k, edge, inner_start, inner_stop, BLOCK_COLUMNS)
                # [BLOCK_COLUMNS BLOCK_WIDTH]
                queries = load_block(
                    head_query, at, columns, query_strides[2], WIDTH, BLOCK_COLUMNS, BLOCK_WIDTH, part == 0
                )
                # [BLOCK_COLUMNS BLOCK_VALUE]
                grads = load_block(
                    head_grad, at, columns, grad_out_strides[2], VALUE_WIDTH, BLOCK_COLUMNS, BLOCK_VALUE,
                    part == 0,
                )  # fmt: skip
                # [BLOCK_COLUMNS]
                row_terms = query_terms(
                    head_terms, at, columns, half, BLOCK_COLUMNS, part == 0, NORMALIZE, ACC
                )
                bias = None
                if table is not None:
                    # [BLOCK_ROWS BLOCK_COLUMNS]
                    bias = lag_scores_transposed(head_table, at, row_start, rows, BLOCK_COLUMNS, BLOCK_ROWS)
                weights = weights_of(
                    own, queries, factor, own_terms, row_terms, bias, low, high, at, BLOCK_COLUMNS,
                    part == 0, PRECISION, ACC,
                )  # fmt: skip
                of_value = tl.dot(
                    weights.to(grads.dtype), grads, of_value, input_precision=PRECISION, out_dtype=ACC
                )
                grad = tl.dot(own_value, tl.trans(grads), input_precision=PRECISION, out_dtype=ACC)
                if NORMALIZE:
                    # [BLOCK_COLUMNS]
                    grad -= load_vector(head_delta, at, columns, 0.0, BLOCK_COLUMNS, part == 0)[None, :]
                grad *= weights
                if norm is not None:
                    key_sum += lane_sums(grad, BLOCK_ROWS, BLOCK_COLUMNS)
                if GROUP > 1:
                    grad *= natural
                of_key = tl.dot(
                    grad.to(queries.dtype), queries, of_key, input_precision=PRECISION, out_dtype=ACC
                )
        if norm is not None:
            of_column = tl.sum(key_sum, 1)
            pulled += rate * of_column
            if of_norm is not None:
                by_norm = -0.5 * of_column * squares
                if OF_SIGMA:
                    by_norm *= -2 * rate / head_number(norm, head, number_step)
                own_share = of_norm + head_index * (rows + columns) + columns
                tl.store(own_share + row, by_norm, mask=row < rows)
    if GROUP == 1:
        of_key *= head_number(scale, group, number_step, OF_SIGMA)
    if norm is not None:
        of_key -= own.to(ACC) * pulled[:, None]
    store_block(grad_key, of_key, row_start, rows, grad_key_strides[2], WIDTH, BLOCK_ROWS, BLOCK_WIDTH)
    store_block(
        grad_value, of_value, row_start, rows, grad_value_strides[2], VALUE_WIDTH, BLOCK_ROWS, BLOCK_VALUE
    )


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
    numbers = number_arguments(scale, norm, sigma)
    vector = torch.empty(batch, heads, rows, dtype=statistics_type(query), device=query.device)
    has_norm = numbers["norm"] is not None
    delta = vector if normalize else None
    terms = log_sum if normalize else squared_norms(query) if has_norm else None
    key_squares = squared_norms(key) if has_norm else None
    of_scale = vector.new_empty(batch, heads, rows) if want_numbers and sigma is None else None
    of_norm = vector.new_empty(batch, heads, rows + columns) if want_numbers and has_norm else None
    slices = None
    table = None if table is None else padded(table)
    grad_query, grad_key, grad_value = token_major(query), token_major(key), token_major(value)
    shared = {"grad_out": grad_out, "query": query, "key": key, "value": value, **numbers}
    shared |= {"terms": terms, "key_squares": key_squares, "delta": delta, "table": table, "heads": heads}
    shared |= {"table_length": 0 if table is None else table.shape[1], "NORMALIZE": normalize}
    shared |= {"WIDTH": width, "VALUE_WIDTH": value_width, "PRECISION": precision(query)}
    shared |= {"BLOCK_WIDTH": block_width(width), "BLOCK_VALUE": block_width(value_width)}
    shared |= strides("grad_out", grad_out) | strides("query", query) | {"ACC": accumulator(query)}
    shared |= strides("key", key) | strides("value", value)
    # Not ALL, but a band without an end: where loops begin at a known 0, ptxas puts waits between products.
    kind = {"KIND": (BAND if spans.first is None else GIVEN).value}
    wanted = {"width": block_width(max(width, value_width)), "dtype": query.dtype}
    own = config("smooth_backward_query", lags=want_table, length=columns, **wanted)
    if want_table:
        own = Config(own.rows, min(own.rows, own.columns), own.warps, own.stages)
        slices = new_slices(query, columns, own)
    blocks = triton.cdiv(rows, own.rows)
    turns = blocks if slices is None else slices.shape[2]
    for first_block in range(0, blocks, turns):
        launch(
            smooth_backward_query_kernel,
            batch * heads * min(turns, blocks - first_block),
            own,
            out=out,
            grad_query=grad_query,
            of_scale=of_scale,
            of_norm=of_norm,
            slices=slices,
            group=heads // groups,
            rows=rows,
            columns=columns,
            first_block=first_block,
            blocks=min(turns, blocks - first_block),
            turns=turns,
            slice_length=0 if slices is None else slices.shape[3],
            **shared,
            **strides("out", out),
            **strides("grad", grad_query),
            **(mask_arguments(spans, rows, columns) | kind),
        )
    grad_table = None if slices is None else sum_slices(slices, rows, columns, own)
    own = config("smooth_backward_key", lags=table is not None, length=rows, **wanted)
    blocks = triton.cdiv(columns, own.rows)
    launch(
        smooth_backward_key_kernel,
        batch * groups * blocks,
        own,
        grad_key=grad_key,
        grad_value=grad_value,
        of_norm=of_norm,
        rows=columns,
        columns=rows,
        blocks=blocks,
        GROUP=heads // groups,
        **shared,
        **strides("grad_key", grad_key),
        **strides("grad_value", grad_value),
        **(mask_arguments(spans.inverse(rows, columns), columns, rows) | kind),
    )
    return grad_query, grad_key, grad_value, of_scale, of_norm, grad_table
