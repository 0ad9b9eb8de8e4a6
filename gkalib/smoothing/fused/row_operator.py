"""KArAt's operator on rows of scores: the r numbers of each row, without the row or its features in memory.

A program forms scores, cosines and sines one block at a time. Queries, keys and coefficients past an end are
loaded as zeros and add zeros, so that no score needs a mask. Chapter 17 teaches it.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import pad
from triton.language.extra import libdevice

from gkalib.smoothing.fused.configs import config
from gkalib.smoothing.fused.launch import (
    accumulator,
    block_width,
    dense_rows,
    interpreting,
    launch,
    precision,
    statistics_type,
    strides,
    token_major,
)
from gkalib.smoothing.fused.scores import head_start, load_block, store_block

PROGRAMS = 512
"""Sums over a batch are cut for about so many programs: the same on every GPU, so that they add up alike."""

TOGETHER = 160
"""A key has so many sums with a head of 64 and three harmonics of 16: one run. Of float32 half as many."""


@triton.jit
def cos_sin(angle, FAST_TRIG: tl.constexpr):
    """cos and sin: one instruction each on a GPU, for which the interpreter has no name."""
    if FAST_TRIG:
        return libdevice.fast_cosf(angle), libdevice.fast_sinf(angle)
    else:
        return tl.cos(angle), tl.sin(angle)


@triton.jit
def add_product(total, left, right, PRECISION: tl.constexpr, ACC: tl.constexpr):
    """total + left right, left rounded to the type of right."""
    return tl.dot(left.to(right.dtype), right, total, input_precision=PRECISION, out_dtype=ACC)


@triton.jit
def table_block(
    table, harmonic, start, keys, BLOCK_RANK: tl.constexpr, BLOCK: tl.constexpr, EDGE: tl.constexpr
):  # fmt: skip
    """One feature's coefficients of keys start … start + BLOCK, [BLOCK BLOCK_RANK]."""
    return load_block(
        table + tl.cast(harmonic * BLOCK_RANK, tl.int64) * keys, start, keys, BLOCK_RANK, BLOCK_RANK, BLOCK,
        BLOCK_RANK, EDGE,
    )  # fmt: skip


@triton.jit
def add_features(
    total, query, key, table, start, keys, key_stride, scale, HARMONICS: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr, BLOCK_RANK: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
    ACC: tl.constexpr, FAST_TRIG: tl.constexpr, EDGE: tl.constexpr,
):  # fmt: skip
    """H's sum over one block of keys, by cos (m+1)S = 2 cos S cos mS − cos (m−1)S, and sin alike."""
    # [BLOCK BLOCK_WIDTH]
    keys_block = load_block(key, start, keys, key_stride, WIDTH, BLOCK, BLOCK_WIDTH, EDGE)
    angle = tl.dot(query, tl.trans(keys_block), input_precision=PRECISION, out_dtype=ACC) * scale
    cosine, sine = cos_sin(angle, FAST_TRIG)
    twice = 2 * cosine
    cosine_before, sine_before = tl.zeros_like(angle) + 1, tl.zeros_like(angle)
    for m in tl.static_range(HARMONICS):
        # [BLOCK BLOCK_RANK]
        of_cosine = table_block(table, m, start, keys, BLOCK_RANK, BLOCK, EDGE)
        total = add_product(total, cosine, of_cosine, PRECISION, ACC)
        # [BLOCK BLOCK_RANK]
        of_sine = table_block(table, HARMONICS + m, start, keys, BLOCK_RANK, BLOCK, EDGE)
        total = add_product(total, sine, of_sine, PRECISION, ACC)
        cosine, cosine_before = twice * cosine - cosine_before, cosine
        sine, sine_before = twice * sine - sine_before, sine
    return total


@triton.jit
def row_operator_forward_kernel(
    query, key, table, scale, features, heads, rows, keys, query_strides, key_strides, RANK: tl.constexpr,
    HARMONICS: tl.constexpr, WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr, BLOCK_RANK: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr,
    FAST_TRIG: tl.constexpr,
):  # fmt: skip
    """H of a block of rows; features are [b h n RANK] without gaps, table is [h 2·HARMONICS N BLOCK_RANK]."""
    blocks = tl.cdiv(rows, BLOCK_ROWS)
    start = tl.program_id(0) % blocks * BLOCK_ROWS
    batch = tl.program_id(0) // blocks // heads
    head = tl.program_id(0) // blocks % heads
    query += head_start(batch, head, query_strides)
    key += head_start(batch, head, key_strides)
    table += head.to(tl.int64) * keys * (2 * HARMONICS * BLOCK_RANK)
    features += (batch.to(tl.int64) * heads + head) * rows * RANK
    factor = tl.load(scale + head)
    # [BLOCK_ROWS BLOCK_WIDTH]
    own = load_block(query, start, rows, query_strides[2], WIDTH, BLOCK_ROWS, BLOCK_WIDTH, True)
    total = tl.zeros([BLOCK_ROWS, BLOCK_RANK], ACC)
    whole = keys // BLOCK_COLUMNS * BLOCK_COLUMNS
    for at in range(0, whole, BLOCK_COLUMNS):
        total = add_features(
            total, own, key, table, at, keys, key_strides[2], factor, HARMONICS, WIDTH, BLOCK_WIDTH,
            BLOCK_RANK, BLOCK_COLUMNS, PRECISION, ACC, FAST_TRIG, False,
        )  # fmt: skip
    if whole < keys:
        total = add_features(
            total, own, key, table, whole, keys, key_strides[2], factor, HARMONICS, WIDTH, BLOCK_WIDTH,
            BLOCK_RANK, BLOCK_COLUMNS, PRECISION, ACC, FAST_TRIG, True,
        )  # fmt: skip
    store_block(features, total, start, rows, RANK, RANK, BLOCK_ROWS, BLOCK_RANK)


@triton.jit
def add_query_slope(
    total, query, grad, key, slopes, start, keys, key_stride, scale, HARMONICS: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr, BLOCK_RANK: tl.constexpr, BLOCK: tl.constexpr,
    PRECISION: tl.constexpr, ACC: tl.constexpr, FAST_TRIG: tl.constexpr, EDGE: tl.constexpr,
):  # fmt: skip
    """The sum of dS_ij k_j over one block of keys; slopes are the coefficients times their harmonic m.

    dS_ij = Re Σ_m (dH_i·m b_mj + √−1 dH_i·m a_mj) zᵐ with z = exp(√−1 S_ij) by Horner's rule: each product is
    added to what the last turn by z left, and needs no registers of its own.
    """
    # [BLOCK BLOCK_WIDTH]
    keys_block = load_block(key, start, keys, key_stride, WIDTH, BLOCK, BLOCK_WIDTH, EDGE)
    angle = tl.dot(query, tl.trans(keys_block), input_precision=PRECISION, out_dtype=ACC) * scale
    cosine, sine = cos_sin(angle, FAST_TRIG)
    real, imaginary = tl.zeros_like(angle), tl.zeros_like(angle)
    for step in tl.static_range(HARMONICS):
        # [BLOCK BLOCK_RANK]
        of_sine = table_block(slopes, 2 * HARMONICS - 1 - step, start, keys, BLOCK_RANK, BLOCK, EDGE)
        real = add_product(real, grad, tl.trans(of_sine), PRECISION, ACC)
        # [BLOCK BLOCK_RANK]
        of_cosine = table_block(slopes, HARMONICS - 1 - step, start, keys, BLOCK_RANK, BLOCK, EDGE)
        imaginary = add_product(imaginary, grad, tl.trans(of_cosine), PRECISION, ACC)
        real, imaginary = real * cosine - imaginary * sine, real * sine + imaginary * cosine
    return add_product(total, real, keys_block, PRECISION, ACC)


@triton.jit
def row_operator_query_kernel(
    query, key, slopes, grad_features, scale, grad_query, heads, rows, keys, query_strides, key_strides,
    grad_strides, RANK: tl.constexpr, HARMONICS: tl.constexpr, WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr,
    BLOCK_RANK: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr, PRECISION: tl.constexpr,
    ACC: tl.constexpr, FAST_TRIG: tl.constexpr,
):  # fmt: skip
    """The gradient of a block of queries; grad_features are [b h n BLOCK_RANK] without gaps."""
    blocks = tl.cdiv(rows, BLOCK_ROWS)
    start = tl.program_id(0) % blocks * BLOCK_ROWS
    batch = tl.program_id(0) // blocks // heads
    head = tl.program_id(0) // blocks % heads
    query += head_start(batch, head, query_strides)
    key += head_start(batch, head, key_strides)
    grad_query += head_start(batch, head, grad_strides)
    grad_features += (batch.to(tl.int64) * heads + head) * rows * BLOCK_RANK
    slopes += head.to(tl.int64) * keys * (2 * HARMONICS * BLOCK_RANK)
    factor = tl.load(scale + head)
    # [BLOCK_ROWS BLOCK_WIDTH], [BLOCK_ROWS BLOCK_RANK]
    own = load_block(query, start, rows, query_strides[2], WIDTH, BLOCK_ROWS, BLOCK_WIDTH, True)
    grad = load_block(grad_features, start, rows, BLOCK_RANK, BLOCK_RANK, BLOCK_ROWS, BLOCK_RANK, True)
    total = tl.zeros([BLOCK_ROWS, BLOCK_WIDTH], ACC)
    whole = keys // BLOCK_COLUMNS * BLOCK_COLUMNS
    for at in range(0, whole, BLOCK_COLUMNS):
        total = add_query_slope(
            total, own, grad, key, slopes, at, keys, key_strides[2], factor, HARMONICS, WIDTH, BLOCK_WIDTH,
            BLOCK_RANK, BLOCK_COLUMNS, PRECISION, ACC, FAST_TRIG, False,
        )  # fmt: skip
    if whole < keys:
        total = add_query_slope(
            total, own, grad, key, slopes, whole, keys, key_strides[2], factor, HARMONICS, WIDTH, BLOCK_WIDTH,
            BLOCK_RANK, BLOCK_COLUMNS, PRECISION, ACC, FAST_TRIG, True,
        )  # fmt: skip
    store_block(grad_query, total * factor, start, rows, grad_strides[2], WIDTH, BLOCK_ROWS, BLOCK_WIDTH)


@triton.jit
def add_key_slope(
    total, tables, key, own_slopes, query, grad_features, start, rows, query_stride, scale,
    HARMONICS: tl.constexpr, WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr, BLOCK_RANK: tl.constexpr,
    BLOCK: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr, FAST_TRIG: tl.constexpr,
    OF_KEY: tl.constexpr, OF_TABLE: tl.constexpr, EDGE: tl.constexpr,
):  # fmt: skip
    """The sums over one block of queries: dS_ij q_i, and for each feature F of the score F_ij dH_i."""
    # [BLOCK BLOCK_WIDTH], [BLOCK BLOCK_RANK]
    queries = load_block(query, start, rows, query_stride, WIDTH, BLOCK, BLOCK_WIDTH, EDGE)
    grad = load_block(grad_features, start, rows, BLOCK_RANK, BLOCK_RANK, BLOCK, BLOCK_RANK, EDGE)
    angle = tl.dot(key, tl.trans(queries), input_precision=PRECISION, out_dtype=ACC) * scale
    cosine, sine = cos_sin(angle, FAST_TRIG)
    if OF_KEY:
        real, imaginary = tl.zeros_like(angle), tl.zeros_like(angle)
        across = tl.trans(grad)
        for step in tl.static_range(HARMONICS):
            real = add_product(real, own_slopes[2 * HARMONICS - 1 - step], across, PRECISION, ACC)
            imaginary = add_product(imaginary, own_slopes[HARMONICS - 1 - step], across, PRECISION, ACC)
            real, imaginary = real * cosine - imaginary * sine, real * sine + imaginary * cosine
        total = add_product(total, real, queries, PRECISION, ACC)
    of_cosine, of_sine = (), ()
    if OF_TABLE:
        twice = 2 * cosine
        cosine_before, sine_before = tl.zeros_like(angle) + 1, tl.zeros_like(angle)
        for m in tl.static_range(HARMONICS):
            of_cosine += (add_product(tables[m], cosine, grad, PRECISION, ACC),)
            of_sine += (add_product(tables[HARMONICS + m], sine, grad, PRECISION, ACC),)
            cosine, cosine_before = twice * cosine - cosine_before, cosine
            sine, sine_before = twice * sine - sine_before, sine
    return total, of_cosine + of_sine


@triton.jit
def row_operator_key_kernel(
    query, key, slopes, grad_features, scale, grad_key, grad_table, batches, batches_each, heads, rows, keys,
    query_strides, key_strides, grad_strides, RANK: tl.constexpr, HARMONICS: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr, BLOCK_RANK: tl.constexpr, BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr, FAST_TRIG: tl.constexpr,
    OF_KEY: tl.constexpr, OF_TABLE: tl.constexpr,
):  # fmt: skip
    """The gradients of a block of keys in batches_each sequences, and of its coefficients, summed over these.

    grad_table is [parts h 2·HARMONICS N RANK].
    """
    blocks = tl.cdiv(keys, BLOCK_ROWS)
    start = tl.program_id(0) % blocks * BLOCK_ROWS
    head = tl.program_id(0) // blocks % heads
    part = tl.program_id(0) // blocks // heads
    slopes += head.to(tl.int64) * keys * (2 * HARMONICS * BLOCK_RANK)
    factor = tl.load(scale + head)
    own_slopes, tables = (), ()
    for m in tl.static_range(2 * HARMONICS):
        # [BLOCK_ROWS BLOCK_RANK]
        if OF_KEY:
            own_slopes += (table_block(slopes, m, start, keys, BLOCK_RANK, BLOCK_ROWS, True),)
        if OF_TABLE:
            tables += (tl.zeros([BLOCK_ROWS, BLOCK_RANK], ACC),)
    whole = rows // BLOCK_COLUMNS * BLOCK_COLUMNS
    for batch in range(part * batches_each, tl.minimum((part + 1) * batches_each, batches)):
        of_query = query + head_start(batch, head, query_strides)
        of_key = key + head_start(batch, head, key_strides)
        of_grad = grad_features + (tl.cast(batch, tl.int64) * heads + head) * rows * BLOCK_RANK
        # [BLOCK_ROWS BLOCK_WIDTH]
        own = load_block(of_key, start, keys, key_strides[2], WIDTH, BLOCK_ROWS, BLOCK_WIDTH, True)
        total = tl.zeros([BLOCK_ROWS, BLOCK_WIDTH], ACC)
        for at in range(0, whole, BLOCK_COLUMNS):
            total, tables = add_key_slope(
                total, tables, own, own_slopes, of_query, of_grad, at, rows, query_strides[2], factor,
                HARMONICS, WIDTH, BLOCK_WIDTH, BLOCK_RANK, BLOCK_COLUMNS, PRECISION, ACC, FAST_TRIG, OF_KEY,
                OF_TABLE, False,
            )  # fmt: skip
        if whole < rows:
            total, tables = add_key_slope(
                total, tables, own, own_slopes, of_query, of_grad, whole, rows, query_strides[2], factor,
                HARMONICS, WIDTH, BLOCK_WIDTH, BLOCK_RANK, BLOCK_COLUMNS, PRECISION, ACC, FAST_TRIG, OF_KEY,
                OF_TABLE, True,
            )  # fmt: skip
        if OF_KEY:
            of_grad_key = grad_key + head_start(batch, head, grad_strides)
            store_block(
                of_grad_key, total * factor, start, keys, grad_strides[2], WIDTH, BLOCK_ROWS, BLOCK_WIDTH
            )
    grad_table += (part.to(tl.int64) * heads + head) * keys * (2 * HARMONICS * RANK)
    if OF_TABLE:
        for m in tl.static_range(2 * HARMONICS):
            of_feature = grad_table + tl.cast(m * RANK, tl.int64) * keys
            store_block(of_feature, tables[m], start, keys, RANK, RANK, BLOCK_ROWS, BLOCK_RANK)


def row_features(query: Tensor, key: Tensor, coefficients: Tensor, scale: Tensor) -> Tensor:
    r"""What a row operator makes of each row of scores: r numbers.

    $$H_{ip} = \sum_{j=1}^{N} \sum_{m=1}^{G} a_{mjp} \cos(m S_{ij}) + b_{mjp} \sin(m S_{ij}), \qquad
    S_{ij} = \mathrm{scale}\; q_i^\top k_j$$

    Args:
        query, key: ``[b h n d]`` and ``[b h N d]``, of one type.
        coefficients: ``[h 2G N r]``, a of all harmonics and then b, r ≤ 64.
        scale: ``[h]``, float32.

    Returns:
        H ``[b h n r]`` in float32, float64 for inputs of that type.
    """
    batch, heads, rows, width = query.shape
    rank = coefficients.shape[-1]
    query, key = dense_rows(query), dense_rows(key)
    table = _padded(coefficients, query.dtype)
    features = query.new_empty(batch, heads, rows, rank, dtype=statistics_type(query))
    sizes = config("row_operator_forward", width=block_width(width), dtype=query.dtype)
    launch(
        row_operator_forward_kernel,
        triton.cdiv(rows, sizes.rows) * batch * heads,
        sizes,
        table=table,
        features=features,
        **_common(query, key, scale, table, rank),
    )
    return features


def row_features_backward(
    grad_features: Tensor, query: Tensor, key: Tensor, coefficients: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    r"""The gradients of ``row_features`` for query, key and coefficients, always added up in the same order.

    $$dS_{ij} = \sum_p dH_{ip} \sum_{m=1}^{G} m\, (b_{mjp} \cos(m S_{ij}) - a_{mjp} \sin(m S_{ij}))$$

    Args:
        grad_features: ``[b h n r]``.
        query, key, coefficients, scale: as ``row_features`` had them.
    """
    batch, heads, rows, width = query.shape
    keys, (count, rank) = key.shape[2], (coefficients.shape[1], coefficients.shape[-1])
    query, key = dense_rows(query), dense_rows(key)
    order = torch.arange(1, count // 2 + 1, device=key.device, dtype=coefficients.dtype).repeat(2)
    slopes = _padded(coefficients * order[:, None, None], query.dtype)
    common = _common(query, key, scale, slopes, rank)
    common |= {"slopes": slopes, "grad_features": _padded(grad_features, query.dtype)}
    grad_query, grad_key = token_major(query), token_major(key)
    sizes = config("row_operator_query", width=block_width(width), dtype=query.dtype)
    launch(
        row_operator_query_kernel,
        triton.cdiv(rows, sizes.rows) * batch * heads,
        sizes,
        grad_query=grad_query,
        **strides("grad", grad_query),
        **common,
    )
    sizes = config("row_operator_key", width=block_width(width), dtype=query.dtype)
    blocks = triton.cdiv(keys, sizes.rows) * heads
    batches_each = triton.cdiv(batch, triton.cdiv(PROGRAMS, blocks))
    parts = triton.cdiv(batch, batches_each)
    grad_table = query.new_empty(parts, *coefficients.shape, dtype=statistics_type(query))
    sums = block_width(width) + slopes.shape[1] * slopes.shape[-1]
    together = sums <= TOGETHER // (2 if query.dtype == torch.float32 else 1)
    for of_key, of_table in [(True, True)] if together else [(True, False), (False, True)]:
        launch(
            row_operator_key_kernel,
            blocks * parts,
            sizes,
            grad_key=grad_key,
            grad_table=grad_table,
            batches=batch,
            batches_each=batches_each,
            OF_KEY=of_key,
            OF_TABLE=of_table,
            **strides("grad", grad_key),
            **common,
        )
    return grad_query, grad_key, grad_table.sum(0).to(coefficients.dtype)


def _common(query: Tensor, key: Tensor, scale: Tensor, table: Tensor, rank: int) -> dict[str, object]:
    """What all three programs are told."""
    _, heads, rows, width = query.shape
    return {
        "query": query,
        "key": key,
        "scale": scale,
        "heads": heads,
        "rows": rows,
        "keys": key.shape[2],
        **strides("query", query),
        **strides("key", key),
        "RANK": rank,
        "HARMONICS": table.shape[1] // 2,
        "WIDTH": width,
        "BLOCK_WIDTH": block_width(width),
        "BLOCK_RANK": table.shape[-1],
        "PRECISION": precision(query),
        "ACC": accumulator(query),
        "FAST_TRIG": not interpreting(),
    }


def _padded(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor in this type, without gaps, its last axis filled up with zeros to a block's width."""
    return pad(tensor.to(dtype), (0, block_width(tensor.shape[-1]) - tensor.shape[-1])).contiguous()
