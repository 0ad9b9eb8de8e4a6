"""The gradients of keys and values by a program for a block of keys, and what it shares with the queries'."""

import triton
import triton.language as tl

from gkalib.smoothing.fused.lag_bias import lag_scores_transposed
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
