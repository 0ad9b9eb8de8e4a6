"""KArAt's operator on rows of scores: the r numbers of each row, without the row or its features in memory.

A program forms scores, cosines and sines one block at a time. Queries, keys and coefficients past an end are
loaded as zeros and add zeros, so that no score needs a mask. Chapter 19 teaches it.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import pad
from triton.language.extra import libdevice

from gkalib.smoothing.fused.configs import config
from gkalib.smoothing.fused.launch import (
    dense_rows,
    derived,
    heads_of,
    interpreting,
    launch,
    numbers_of,
    statistics,
    token_major,
)
from gkalib.smoothing.fused.scores import (
    Head,
    block_width,
    dot,
    head_of,
    load_block,
    place,
    scale_of,
    store_block,
    sum_type,
)

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
def table_block(
    table, feature, start, keys, RANK: tl.constexpr, BLOCK: tl.constexpr, EDGE: tl.constexpr
):  # fmt: skip
    """One feature's coefficients of keys start … start + BLOCK, [BLOCK block_width]."""
    WIDTH: tl.constexpr = block_width(RANK)
    of_feature = Head(table + tl.cast(feature * WIDTH, tl.int64) * keys, WIDTH)
    return load_block(of_feature, start, keys, BLOCK, WIDTH, EDGE)


@triton.jit
def row_operator_forward_kernel(
    query, key, table, numbers, features, heads, rows, keys, RANK: tl.constexpr, HARMONICS: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr, FAST_TRIG: tl.constexpr,
):  # fmt: skip
    """H of a block of rows; features are [b h n RANK], table [h 2·HARMONICS N block_width] without gaps."""
    batch, head, sequence, start = place(heads, rows, BLOCK_ROWS)
    key = head_of(key, batch, head)
    table += head.to(tl.int64) * keys * (2 * HARMONICS * block_width(RANK))
    scale = scale_of(numbers, head)
    # [BLOCK_ROWS block_width]
    own = load_block(head_of(query, batch, head), start, rows, BLOCK_ROWS, WIDTH, True)
    total = tl.zeros([BLOCK_ROWS, block_width(RANK)], sum_type(own.dtype))
    whole = keys // BLOCK_COLUMNS * BLOCK_COLUMNS
    for at in range(0, whole, BLOCK_COLUMNS):
        total = add_features(
            total, own, key, table, at, keys, scale, RANK, HARMONICS, WIDTH, BLOCK_COLUMNS, FAST_TRIG, False
        )
    if whole < keys:
        total = add_features(
            total, own, key, table, whole, keys, scale, RANK, HARMONICS, WIDTH, BLOCK_COLUMNS, FAST_TRIG, True
        )
    store_block(Head(features + sequence * rows * RANK, RANK), total, start, rows, RANK)


@triton.jit
def add_features(
    total, query, key, table, start, keys, scale, RANK: tl.constexpr, HARMONICS: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, FAST_TRIG: tl.constexpr, EDGE: tl.constexpr,
):  # fmt: skip
    """H's sum over one block of keys, by cos (m+1)S = 2 cos S cos mS − cos (m−1)S, and sin alike."""
    # [BLOCK block_width]
    keys_block = load_block(key, start, keys, BLOCK, WIDTH, EDGE)
    angle = dot(query, tl.trans(keys_block)) * scale
    cosine, sine = cos_sin(angle, FAST_TRIG)
    twice = 2 * cosine
    cosine_before, sine_before = tl.zeros_like(angle) + 1, tl.zeros_like(angle)
    for m in tl.static_range(HARMONICS):
        # [BLOCK block_width]
        total = dot(cosine, table_block(table, m, start, keys, RANK, BLOCK, EDGE), total)
        # [BLOCK block_width]
        total = dot(sine, table_block(table, HARMONICS + m, start, keys, RANK, BLOCK, EDGE), total)
        cosine, cosine_before = twice * cosine - cosine_before, cosine
        sine, sine_before = twice * sine - sine_before, sine
    return total


@triton.jit
def row_operator_query_kernel(
    query, key, slopes, grad_features, numbers, grad_query, heads, rows, keys, RANK: tl.constexpr,
    HARMONICS: tl.constexpr, WIDTH: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr,
    FAST_TRIG: tl.constexpr,
):  # fmt: skip
    """The gradient of a block of queries; grad_features are [b h n block_width] without gaps."""
    batch, head, sequence, start = place(heads, rows, BLOCK_ROWS)
    BLOCK_RANK: tl.constexpr = block_width(RANK)
    key = head_of(key, batch, head)
    slopes += head.to(tl.int64) * keys * (2 * HARMONICS * BLOCK_RANK)
    of_grad = Head(grad_features + sequence * rows * BLOCK_RANK, BLOCK_RANK)
    scale = scale_of(numbers, head)
    # [BLOCK_ROWS block_width], [BLOCK_ROWS BLOCK_RANK]
    own = load_block(head_of(query, batch, head), start, rows, BLOCK_ROWS, WIDTH, True)
    grad = load_block(of_grad, start, rows, BLOCK_ROWS, BLOCK_RANK, True)
    total = tl.zeros([BLOCK_ROWS, block_width(WIDTH)], sum_type(own.dtype))
    whole = keys // BLOCK_COLUMNS * BLOCK_COLUMNS
    for at in range(0, whole, BLOCK_COLUMNS):
        total = add_query_slope(
            total, own, grad, key, slopes, at, keys, scale, RANK, HARMONICS, WIDTH, BLOCK_COLUMNS,
            FAST_TRIG, False,
        )  # fmt: skip
    if whole < keys:
        total = add_query_slope(
            total, own, grad, key, slopes, whole, keys, scale, RANK, HARMONICS, WIDTH, BLOCK_COLUMNS,
            FAST_TRIG, True,
        )  # fmt: skip
    store_block(head_of(grad_query, batch, head), total * scale, start, rows, WIDTH)


@triton.jit
def add_query_slope(
    total, query, grad, key, slopes, start, keys, scale, RANK: tl.constexpr, HARMONICS: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, FAST_TRIG: tl.constexpr, EDGE: tl.constexpr,
):  # fmt: skip
    """The sum of dS_ij k_j over one block of keys; slopes are the coefficients times their harmonic m.

    dS_ij = Re Σ_m (dH_i·m b_mj + √−1 dH_i·m a_mj) zᵐ with z = exp(√−1 S_ij) by Horner's rule: each product is
    added to what the last turn by z left, and needs no registers of its own.
    """
    # [BLOCK block_width]
    keys_block = load_block(key, start, keys, BLOCK, WIDTH, EDGE)
    angle = dot(query, tl.trans(keys_block)) * scale
    cosine, sine = cos_sin(angle, FAST_TRIG)
    real, imaginary = tl.zeros_like(angle), tl.zeros_like(angle)
    for step in tl.static_range(HARMONICS):
        # [BLOCK block_width]
        of_sine = table_block(slopes, 2 * HARMONICS - 1 - step, start, keys, RANK, BLOCK, EDGE)
        real = dot(grad, tl.trans(of_sine), real)
        # [BLOCK block_width]
        of_cosine = table_block(slopes, HARMONICS - 1 - step, start, keys, RANK, BLOCK, EDGE)
        imaginary = dot(grad, tl.trans(of_cosine), imaginary)
        real, imaginary = real * cosine - imaginary * sine, real * sine + imaginary * cosine
    return dot(real, keys_block, total)


@triton.jit
def row_operator_key_kernel(
    query, key, slopes, grad_features, numbers, grad_key, grad_table, batches, batches_each, heads, rows,
    keys, RANK: tl.constexpr, HARMONICS: tl.constexpr, WIDTH: tl.constexpr, BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr, FAST_TRIG: tl.constexpr, OF_KEY: tl.constexpr, OF_TABLE: tl.constexpr,
):  # fmt: skip
    """The gradients of a block of keys in batches_each sequences, and of its coefficients, summed over these.

    grad_table is [parts h 2·HARMONICS N RANK].
    """
    blocks = tl.cdiv(keys, BLOCK_ROWS)
    start = tl.program_id(0) % blocks * BLOCK_ROWS
    head = tl.program_id(0) // blocks % heads
    part = tl.program_id(0) // blocks // heads
    BLOCK_RANK: tl.constexpr = block_width(RANK)
    ACC: tl.constexpr = grad_table.dtype.element_ty
    slopes += head.to(tl.int64) * keys * (2 * HARMONICS * BLOCK_RANK)
    scale = scale_of(numbers, head)
    own_slopes, tables = (), ()
    for m in tl.static_range(2 * HARMONICS):
        # [BLOCK_ROWS BLOCK_RANK]
        if OF_KEY:
            own_slopes += (table_block(slopes, m, start, keys, RANK, BLOCK_ROWS, True),)
        if OF_TABLE:
            tables += (tl.zeros([BLOCK_ROWS, BLOCK_RANK], ACC),)
    whole = rows // BLOCK_COLUMNS * BLOCK_COLUMNS
    for batch in range(part * batches_each, tl.minimum((part + 1) * batches_each, batches)):
        of_query = head_of(query, batch, head)
        grad_start = grad_features + (tl.cast(batch, tl.int64) * heads + head) * rows * BLOCK_RANK
        of_grad = Head(grad_start, BLOCK_RANK)
        # [BLOCK_ROWS block_width]
        own = load_block(head_of(key, batch, head), start, keys, BLOCK_ROWS, WIDTH, True)
        total = tl.zeros([BLOCK_ROWS, block_width(WIDTH)], ACC)
        for at in range(0, whole, BLOCK_COLUMNS):
            total, tables = add_key_slope(
                total, tables, own, own_slopes, of_query, of_grad, at, rows, scale, RANK, HARMONICS, WIDTH,
                BLOCK_COLUMNS, FAST_TRIG, OF_KEY, OF_TABLE, False,
            )  # fmt: skip
        if whole < rows:
            total, tables = add_key_slope(
                total, tables, own, own_slopes, of_query, of_grad, whole, rows, scale, RANK, HARMONICS, WIDTH,
                BLOCK_COLUMNS, FAST_TRIG, OF_KEY, OF_TABLE, True,
            )  # fmt: skip
        if OF_KEY:
            store_block(head_of(grad_key, batch, head), total * scale, start, keys, WIDTH)
    grad_table += (part.to(tl.int64) * heads + head) * keys * (2 * HARMONICS * RANK)
    if OF_TABLE:
        for m in tl.static_range(2 * HARMONICS):
            of_feature = Head(grad_table + tl.cast(m * RANK, tl.int64) * keys, RANK)
            store_block(of_feature, tables[m], start, keys, RANK)


@triton.jit
def add_key_slope(
    total, tables, key, own_slopes, query, grad_features, start, rows, scale, RANK: tl.constexpr,
    HARMONICS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, FAST_TRIG: tl.constexpr,
    OF_KEY: tl.constexpr, OF_TABLE: tl.constexpr, EDGE: tl.constexpr,
):  # fmt: skip
    """The sums over one block of queries: dS_ij q_i, and for each feature F of the score F_ij dH_i."""
    # [BLOCK block_width] twice
    queries = load_block(query, start, rows, BLOCK, WIDTH, EDGE)
    grad = load_block(grad_features, start, rows, BLOCK, block_width(RANK), EDGE)
    angle = dot(key, tl.trans(queries)) * scale
    cosine, sine = cos_sin(angle, FAST_TRIG)
    if OF_KEY:
        real, imaginary = tl.zeros_like(angle), tl.zeros_like(angle)
        across = tl.trans(grad)
        for step in tl.static_range(HARMONICS):
            real = dot(own_slopes[2 * HARMONICS - 1 - step], across, real)
            imaginary = dot(own_slopes[HARMONICS - 1 - step], across, imaginary)
            real, imaginary = real * cosine - imaginary * sine, real * sine + imaginary * cosine
        total = dot(real, queries, total)
    of_cosine, of_sine = (), ()
    if OF_TABLE:
        twice = 2 * cosine
        cosine_before, sine_before = tl.zeros_like(angle) + 1, tl.zeros_like(angle)
        for m in tl.static_range(HARMONICS):
            of_cosine += (dot(cosine, grad, tables[m]),)
            of_sine += (dot(sine, grad, tables[HARMONICS + m]),)
            cosine, cosine_before = twice * cosine - cosine_before, cosine
            sine, sine_before = twice * sine - sine_before, sine
    return total, of_cosine + of_sine


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
    batch, heads, rows, _ = query.shape
    rank = coefficients.shape[-1]
    query, key = dense_rows(query), dense_rows(key)
    table = _padded(coefficients, query.dtype)
    features = statistics(query, batch, heads, rows, rank)
    sizes = config("row_operator_forward", **_wanted(query, key))
    launch(
        row_operator_forward_kernel,
        triton.cdiv(rows, sizes.rows) * batch * heads,
        sizes,
        table=table,
        features=features,
        **_common(query, key, scale, table, rank),
    )
    return features


def _wanted(query: Tensor, key: Tensor) -> dict[str, Any]:
    """What block sizes depend on."""
    length = max(query.shape[2], key.shape[2])
    wanted = {"width": block_width(query.shape[3]), "dtype": query.dtype, "length": length}
    return wanted | {"device": query.device, "operation": "rows"}


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
    slopes = _padded(coefficients, query.dtype, harmonics=count // 2)
    common = _common(query, key, scale, slopes, rank)
    common |= {"slopes": slopes, "grad_features": _padded(grad_features, query.dtype)}
    grad_query, grad_key = token_major(query), token_major(key)
    sizes = config("row_operator_query", **_wanted(query, key))
    launch(
        row_operator_query_kernel,
        triton.cdiv(rows, sizes.rows) * batch * heads,
        sizes,
        grad_query=heads_of(grad_query),
        **common,
    )
    sizes = config("row_operator_key", **_wanted(query, key))
    blocks = triton.cdiv(keys, sizes.rows) * heads
    batches_each = triton.cdiv(batch, triton.cdiv(PROGRAMS, blocks))
    parts = triton.cdiv(batch, batches_each)
    grad_table = statistics(query, parts, *coefficients.shape)
    sums = block_width(width) + slopes.shape[1] * slopes.shape[-1]
    together = sums <= TOGETHER // (2 if query.dtype == torch.float32 else 1)
    for of_key, of_table in [(True, True)] if together else [(True, False), (False, True)]:
        launch(
            row_operator_key_kernel,
            blocks * parts,
            sizes,
            grad_key=heads_of(grad_key),
            grad_table=grad_table,
            batches=batch,
            batches_each=batches_each,
            OF_KEY=of_key,
            OF_TABLE=of_table,
            **common,
        )
    dtype = coefficients.dtype
    return grad_query, grad_key, derived(lambda table: table.sum(0).to(dtype), grad_table)


def _common(query: Tensor, key: Tensor, scale: Tensor, table: Tensor, rank: int) -> dict[str, object]:
    """What all three programs are told."""
    _, heads, rows, width = query.shape
    return {
        "query": heads_of(query),
        "key": heads_of(key),
        "numbers": numbers_of(scale, None, None),
        "heads": heads,
        "rows": rows,
        "keys": key.shape[2],
        "RANK": rank,
        "HARMONICS": table.shape[1] // 2,
        "WIDTH": width,
        "FAST_TRIG": not interpreting(),
    }


def _padded(tensor: Tensor, dtype: torch.dtype, harmonics: int = 0) -> Tensor:
    """The tensor in this type, without gaps, its last axis filled up with zeros to a block's width.

    With so many harmonics it is coefficients ``[h 2G N r]``, and each is multiplied by its own first.
    """

    def made(tensor: Tensor) -> Tensor:
        if harmonics:
            order = torch.arange(1, harmonics + 1, device=tensor.device, dtype=tensor.dtype).repeat(2)
            tensor = tensor * order[:, None, None]
        return pad(tensor.to(dtype), (0, block_width(tensor.shape[-1]) - tensor.shape[-1])).contiguous()

    return derived(made, tensor)
