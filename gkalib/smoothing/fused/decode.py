"""One new token against a cache of earlier ones, split along the sequence. Chapter 20 teaches it."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from gkalib.smoothing.fused.cards import operation
from gkalib.smoothing.fused.configs import config
from gkalib.smoothing.fused.launch import (
    Size,
    dense_rows,
    heads_of,
    launch,
    name_of,
    numbers_of,
    statistics,
    token_major,
)
from gkalib.smoothing.fused.scores import LOG2_E, Heads, block_width, dot, head_of, norm_of, scale_of

RESIDENT = 5
"""How many programs a processor holds at once while a thread of theirs has at most 96 registers."""
PROCESSORS = 132
"""Of an H100, where there is no card to ask."""
MOST_SPLITS = 64
"""The most parts of one row that the second program adds up at once."""
LOWEST: tl.constexpr = tl.constexpr(-1e38)


@triton.jit
def seen_bounds(allowed, start, stop, BLOCK: tl.constexpr):
    """The first of keys start … stop − 1 that may be seen and one past the last; stop, start without any."""
    first = tl.full([BLOCK], 0, tl.int32) + stop
    last = tl.full([BLOCK], 0, tl.int32) + start
    for at in range(start, stop, BLOCK):
        key = at + tl.arange(0, BLOCK)
        # [BLOCK]
        seen = tl.load(allowed + key, mask=key < stop, other=0) != 0
        first = tl.minimum(first, tl.where(seen, key, stop))
        last = tl.maximum(last, tl.where(seen, key + 1, start))
    return tl.min(first), tl.max(last)


@triton.jit
def load_present(head, start, present, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Rows start … start + BLOCK of a head, [BLOCK block_width]; zero, and not read, where not present."""
    row = tl.arange(0, BLOCK)
    column = tl.arange(0, block_width(WIDTH))
    first = head.start + tl.cast(start, tl.int64) * head.stride
    wanted = present[:, None]
    if block_width(WIDTH) != WIDTH:
        wanted = wanted & (column < WIDTH)[None, :]
    return tl.load(first + row[:, None] * head.stride + column[None, :], mask=wanted, other=0.0)


@triton.jit
def part_of(lengths, allowed, batch, keys, split, splits, BLOCK: tl.constexpr):
    """Of the keys of one sequence, those that a part reads: from which one on, and where it stops."""
    if lengths is not None:
        keys = tl.minimum(tl.load(lengths + batch).to(tl.int32), keys)
    each = tl.cdiv(tl.cdiv(keys, BLOCK), splits) * BLOCK
    start = split * each
    stop = tl.minimum(start + each, keys)
    if allowed is not None:
        start, stop = seen_bounds(allowed, start, stop, 256)
    return start, stop


@triton.jit
def present_at(allowed, at, stop, BLOCK: tl.constexpr):
    """Which of the keys at … at + BLOCK there are and may be seen."""
    index = at + tl.arange(0, BLOCK)
    present = index < stop
    if allowed is not None:
        present = present & (tl.load(allowed + index.to(tl.int64), mask=present, other=0) != 0)
    return present


# What changes while a cache grows is not compiled in: one program serves every length.
GROWING = ["splits", "keys", "table_batch", "table_head", "allowed_batch", "allowed_head"]


@triton.jit(do_not_specialize=GROWING, do_not_specialize_on_alignment=["table"])
def decode_split_kernel(
    query, key, value, numbers, table, allowed, lengths, total, largest, partial, heads, group, splits, keys,
    table_batch, table_head, allowed_batch, allowed_head, WIDTH: tl.constexpr, VALUE_WIDTH: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Σ_j 2^(s_j − top) v_j and Σ_j 2^(s_j − top) over one part of the keys, s_j = log₂ κ(q, k_j).

    Each of BLOCK_COLUMNS slots keeps sums, and where MAXIMUM a largest score, of its own, every
    BLOCK_COLUMNS-th key: no thread waits for another until the part is read. Otherwise top is 0.
    """
    ONE: tl.constexpr = value.start is None
    GAUSSIAN: tl.constexpr = numbers.sigma is not None
    NORM: tl.constexpr = numbers.norm is not None or numbers.sigma is not None
    MAXIMUM: tl.constexpr = largest is not None
    ACC: tl.constexpr = total.dtype.element_ty
    program = tl.program_id(0)
    head, split, batch = program % heads, program // heads % splits, program // heads // splits
    key = head_of(key, batch, head // group)
    if not ONE:
        value = head_of(value, batch, head // group)
    if table is not None:
        table = head_of(Heads(table, (table_batch, table_head, 1)), batch, head).start
    column = tl.arange(0, block_width(WIDTH))
    # [1 block_width]
    q = tl.load(head_of(query, batch, head).start + column, mask=column < WIDTH, other=0.0).to(ACC)[None, :]
    factor = scale_of(numbers, head).to(ACC) * LOG2_E
    if NORM:
        half = norm_of(numbers, head).to(ACC) * (0.5 * LOG2_E)
        factor -= 2 * half
    if allowed is not None:
        allowed = head_of(Heads(allowed, (allowed_batch, allowed_head, 1)), batch, head).start
    start, stop = part_of(lengths, allowed, batch, keys, split, splits, BLOCK_COLUMNS)
    slot = tl.arange(0, BLOCK_COLUMNS)
    acc = tl.zeros([BLOCK_COLUMNS, block_width(VALUE_WIDTH)], ACC)
    weights = tl.zeros([BLOCK_COLUMNS], ACC)
    top = tl.full([BLOCK_COLUMNS], LOWEST, ACC)
    # A loop without a product is pipelined only if it says how deep.
    for at in tl.range(start, stop, BLOCK_COLUMNS, num_stages=STAGES):
        present = present_at(allowed, at, stop, BLOCK_COLUMNS)
        # [BLOCK_COLUMNS block_width]
        k = load_present(key, at, present, WIDTH, BLOCK_COLUMNS).to(ACC)
        score = tl.zeros([BLOCK_COLUMNS], ACC)
        if not GAUSSIAN:
            score += factor * tl.sum(q * k, 1)
        if NORM:
            # s q·k − ν/2 (|q|² + |k|²) = (s − ν) q·k − ν/2 |q − k|², which is exact at k = q.
            apart = q - k
            score -= half * tl.sum(apart * apart, 1)
        if table is not None:
            # [BLOCK_COLUMNS]
            lag = tl.load(table + (at + slot).to(tl.int64), mask=present, other=0.0).to(ACC)
            score += lag * LOG2_E
        score = tl.where(present, score, float("-inf"))
        if MAXIMUM:
            higher = tl.maximum(top, score)
            shrink = tl.exp2(top - higher)
            acc *= shrink[:, None]
            weights *= shrink
            top = higher
            weight = tl.exp2(score - top)
        else:
            weight = tl.exp2(score)
        if ONE:
            acc += weight[:, None] * k
        else:
            # [BLOCK_COLUMNS block_width]
            v = load_present(value, at, present, VALUE_WIDTH, BLOCK_COLUMNS).to(ACC)
            acc += weight[:, None] * v
        weights += weight
    which = (batch * heads + head).to(tl.int64) * splits + split
    if MAXIMUM:
        highest = tl.max(top)
        shrink = tl.exp2(top - highest)
        acc *= shrink[:, None]
        weights *= shrink
        tl.store(largest + which, highest)
    tl.store(total + which, tl.sum(weights))
    wide = tl.arange(0, block_width(VALUE_WIDTH))
    tl.store(partial + which * VALUE_WIDTH + wide, tl.sum(acc, 0), mask=wide < VALUE_WIDTH)


@triton.jit(do_not_specialize=GROWING, do_not_specialize_on_alignment=["table"])
def decode_group_kernel(
    query, key, value, numbers, table, allowed, lengths, total, largest, partial, heads, group, splits, keys,
    table_batch, table_head, allowed_batch, allowed_head, WIDTH: tl.constexpr, VALUE_WIDTH: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr,
):  # fmt: skip
    """The same sums for the query heads that share a key head: each key is read once, for all of them.

    ROWS, of which the first ``group`` count, are as many as a product takes. All heads see the same keys.
    """
    ONE: tl.constexpr = value.start is None
    MAXIMUM: tl.constexpr = largest is not None
    ACC: tl.constexpr = total.dtype.element_ty
    program, groups = tl.program_id(0), heads // group
    shared, split, batch = program % groups, program // groups % splits, program // groups // splits
    row = tl.arange(0, ROWS)
    head = shared * group + tl.minimum(row, group - 1)
    key = head_of(key, batch, shared)
    if not ONE:
        value = head_of(value, batch, shared)
    if table is not None:
        table = head_of(Heads(table, (table_batch, table_head, 1)), batch, head).start
    if allowed is not None:
        allowed = head_of(Heads(allowed, (allowed_batch, allowed_head, 1)), batch, shared).start
    column = tl.arange(0, block_width(WIDTH))
    # [ROWS block_width]
    address = head_of(query, batch, head).start[:, None] + column[None, :]
    q = tl.load(address, mask=(column < WIDTH)[None, :], other=0.0)
    factor = scale_of(numbers, head).to(ACC)[:, None] * LOG2_E
    start, stop = part_of(lengths, allowed, batch, keys, split, splits, BLOCK_COLUMNS)
    acc = tl.zeros([ROWS, block_width(VALUE_WIDTH)], ACC)
    weights = tl.zeros([ROWS], ACC)
    top = tl.full([ROWS], LOWEST if MAXIMUM else 0.0, ACC)
    for at in range(start, stop, BLOCK_COLUMNS):
        present = present_at(allowed, at, stop, BLOCK_COLUMNS)
        k = load_present(key, at, present, WIDTH, BLOCK_COLUMNS)
        # [ROWS BLOCK_COLUMNS]
        score = factor * dot(q, tl.trans(k))
        if table is not None:
            index = (at + tl.arange(0, BLOCK_COLUMNS)).to(tl.int64)
            lag = tl.load(table[:, None] + index[None, :], mask=present[None, :], other=0.0).to(ACC)
            score += lag * LOG2_E
        score = tl.where(present[None, :], score, float("-inf"))
        if MAXIMUM:
            higher = tl.maximum(top, tl.max(score, 1))
            shrink = tl.exp2(top - higher)
            acc *= shrink[:, None]
            weights *= shrink
            top = higher
        weight = tl.exp2(score - top[:, None])
        v = k if ONE else load_present(value, at, present, VALUE_WIDTH, BLOCK_COLUMNS)
        acc = dot(weight, v, acc)
        weights += tl.sum(weight, 1)
    which = (batch * heads + head).to(tl.int64) * splits + split
    mine = row < group
    if MAXIMUM:
        tl.store(largest + which, top, mask=mine)
    tl.store(total + which, weights, mask=mine)
    wide = tl.arange(0, block_width(VALUE_WIDTH))
    inside = mine[:, None] & (wide < VALUE_WIDTH)[None, :]
    tl.store(partial + which[:, None] * VALUE_WIDTH + wide[None, :], acc, mask=inside)


@triton.jit(do_not_specialize=["splits"])
def decode_combine_kernel(
    out, total, largest, partial, log_eps, heads, splits, NORMALIZE: tl.constexpr, EPS: tl.constexpr,
    VALUE_WIDTH: tl.constexpr, BLOCK_SPLITS: tl.constexpr,
):  # fmt: skip
    """out = Σ_s f_s acc_s / (Σ_s f_s l_s + eps) over the parts of one row; f_s = 2^(top_s − top), or 1."""
    MAXIMUM: tl.constexpr = largest is not None
    row = tl.program_id(0).to(tl.int64)
    split = tl.arange(0, BLOCK_SPLITS)
    wide = tl.arange(0, block_width(VALUE_WIDTH))
    exists = split < splits
    which = row * splits + split
    inside = exists[:, None] & (wide < VALUE_WIDTH)[None, :]
    # [BLOCK_SPLITS block_width]
    above = tl.load(partial + which[:, None] * VALUE_WIDTH + wide[None, :], mask=inside, other=0.0)
    below = tl.load(total + which, mask=exists, other=0.0)
    highest = tl.full([], 0.0, total.dtype.element_ty)
    if MAXIMUM:
        top = tl.load(largest + which, mask=exists, other=LOWEST)
        highest += tl.max(top)
        if EPS:
            highest = tl.maximum(highest, log_eps)
        factor = tl.exp2(top - highest)
        above *= factor[:, None]
        below *= factor
    result = tl.sum(above, 0)
    if NORMALIZE:
        divisor = tl.sum(below)
        if EPS:
            divisor += tl.exp2(log_eps - highest)
        result /= tl.where(divisor > 0, divisor, 1.0)
    out = head_of(out, row // heads, row % heads).start
    tl.store(out + wide, result.to(out.dtype.element_ty), mask=wide < VALUE_WIDTH)


def processors(device: torch.device) -> int:
    """Of a device."""
    if device.type != "cuda":
        return PROCESSORS
    return torch.cuda.get_device_properties(device).multi_processor_count


def most_splits(rows: int, processors: int = PROCESSORS) -> int:
    """Into at most how many parts the keys of each of so many rows are split, however long a cache grows.

    All programs run at once: one more would wait for the first of them to end.
    """
    return min(max(1, RESIDENT * processors // rows), MOST_SPLITS)


def parts(rows: int, keys: int, columns: int, processors: int = PROCESSORS) -> tuple[int, int]:
    """Into how many parts the keys of each of so many rows are split, and how many blocks a part has."""
    blocks = triton.cdiv(keys, columns)
    each = triton.cdiv(blocks, min(most_splits(rows, processors), blocks))
    return triton.cdiv(blocks, each), each


def _starts(name: str, tensor: Tensor | None) -> dict[str, int]:
    """How far sequences and heads lie apart in what grows with a cache; 0 where there is no tensor."""
    if tensor is None:
        return {f"{name}_batch": 0, f"{name}_head": 0}
    return {f"{name}_batch": tensor.stride(0) if len(tensor) > 1 else 0, f"{name}_head": tensor.stride(1)}


def _same(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors are the same numbers in the same memory."""
    return first is second or (
        first.data_ptr() == second.data_ptr()
        and first.shape == second.shape
        and first.stride() == second.stride()
    )


def decode(
    query: Tensor,
    key: Tensor,
    value: Tensor | None,
    scale: Tensor | None,
    norm: Tensor | None,
    table_row: Tensor | None,
    allowed: Tensor | None,
    normalize: bool,
    *,
    lengths: Tensor | None = None,
    sigma: Tensor | None = None,
    eps: float = 0.0,
) -> Tensor:
    r"""The smoothed value of one new token, from a cache of keys and values.

    $$\mathrm{out} = \frac{\sum_j \kappa_j v_j}{\sum_j \kappa_j + \varepsilon}, \qquad
    \log\kappa_j = s\, q^\top k_j - \tfrac{\nu}{2} (|q|^2 + |k_j|^2) + t_j$$

    The keys are split into parts with sums of their own, which a second program adds. A part divides by its
    largest score's κ, so that nothing overflows; where ``normalize`` is off the sums add as they are. Query
    heads that share keys share one reading of them too, where scores are dot products and all see the same
    keys. No size is read from the device.

    Args:
        query: ``[b h 1 d]``.
        key, value: ``[b g m d]`` and ``[b g m e]``, where g divides h; views of a longer tensor stay views,
            and one tensor given for both, or alone, is read once.
        scale: s, ``[h]``.
        norm: ν, ``[h]``, or None for no norms.
        table_row: t, ``[b h m]`` or ``[1 h m]``, or None.
        allowed: True for a key that is seen, broadcasting to ``[b h 1 m]``; None is all. What is not seen is
            not read. A row that sees nothing is zero.
        normalize: whether to divide.
        lengths: ``[b]``, how many keys of each sequence there are yet; what lies behind is not read. It stays
            on the device, so that a captured graph follows a cache that grows. None: m each.
        sigma: σ, ``[h]`` or ``[1]``, in place of scale and norm where both are σ⁻²: no product q·k is needed.
        eps: ε, in units of κ.

    Returns:
        ``[b h 1 e]``. It has no gradient.
    """
    one = value is None or _same(key, value)
    query, key = dense_rows(query), dense_rows(key)
    value = key if value is None or one else dense_rows(value)
    batch, heads, _, width = query.shape
    groups, keys, value_width = key.shape[1], key.shape[2], value.shape[3]
    table = None if table_row is None else dense_rows(table_row)
    seen = None if allowed is None else dense_rows(allowed.expand(batch, heads, 1, keys)[:, :, 0])
    gaussian = norm is not None or sigma is not None
    shared = groups < heads and not gaussian and (seen is None or seen.stride(1) == 0)
    program, rows = (decode_group_kernel, groups) if shared else (decode_split_kernel, heads)
    block = config(
        name_of(program),
        width=block_width(max(width, value_width)),
        dtype=query.dtype,
        length=keys,
        device=query.device,
        operation=operation("decode", gaussian=gaussian, lags=table is not None, normalize=normalize),
    )
    most = most_splits(batch * rows, processors(query.device))
    splits, _ = parts(batch * rows, keys, block.columns, processors(query.device))
    total = statistics(query, batch, heads, splits)
    partial = statistics(query, batch, heads, splits, value_width)
    out = token_major(query, value_width)
    common = {
        "total": total,
        "largest": statistics(query, batch, heads, splits) if normalize else None,
        "partial": partial,
        "heads": heads,
        "splits": splits,
        "VALUE_WIDTH": value_width,
    }
    launch(
        program,
        batch * rows * splits,
        block,
        query=heads_of(query),
        key=heads_of(key),
        value=Heads(None, None) if one else heads_of(value),
        numbers=numbers_of(scale, norm, sigma),
        table=table,
        allowed=None if seen is None else seen.view(torch.uint8),
        lengths=lengths,
        group=heads // groups,
        keys=Size(key, 2),
        **_starts("table", table) | _starts("allowed", seen),
        **({"ROWS": max(16, triton.next_power_of_2(heads // groups))} if shared else {}),
        WIDTH=width,
        **common,
    )
    launch(
        decode_combine_kernel,
        batch * heads,
        config("decode_combine", width=block_width(value_width), dtype=query.dtype, length=splits),
        out=heads_of(out),
        log_eps=math.log2(eps) if eps else 0.0,
        NORMALIZE=normalize,
        EPS=eps > 0,
        BLOCK_SPLITS=triton.next_power_of_2(most),
        **common,
    )
    return out
