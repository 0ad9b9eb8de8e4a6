"""What the fused programs share: how tensors are given, heads, products, blocks, masks as spans, the walk."""

from typing import Any, NamedTuple

import triton
import triton.language as tl

LOG2_E: tl.constexpr = tl.constexpr(1.4426950408889634)


class Heads(NamedTuple):
    """A tensor ``[b h n d]``: where it starts, and the strides of its sequences, heads and rows."""

    start: Any
    strides: Any


class Head(NamedTuple):
    """One head of it, ``[n d]``: where it starts, and the stride of its rows."""

    start: Any
    stride: Any


class Numbers(NamedTuple):
    """s and ν of each head, or σ in the place of both where they are σ⁻²; the step is 0 where heads share."""

    scale: Any
    norm: Any
    sigma: Any
    step: Any


class Mask(NamedTuple):
    """The keys that each query sees: [first, last), or a band around its own place; all of them if empty."""

    first: Any = None
    last: Any = None
    stride: Any = None
    left: Any = None
    right: Any = None


class Walk(NamedTuple):
    """What a block of rows does with the columns: row i sees [low_i, high_i).

    Of the blocks of columns from ``start`` on, ``edges`` have to be compared with the spans; those in
    [inner_start, inner_stop) are seen by every row.
    """

    low: Any
    high: Any
    start: Any
    inner_start: Any
    inner_stop: Any
    edges: Any


@triton.constexpr_function
def sum_type(dtype):
    """The type in which sums of numbers of this type are kept."""
    return tl.float64 if dtype == tl.float64 else tl.float32


@triton.constexpr_function
def input_precision(dtype):
    """How products of this type are formed: float32 as three tf32 products, never as one."""
    return "tf32x3" if dtype == tl.float32 else "ieee"


@triton.constexpr_function
def block_width(width):
    """The power of two, 16 or more, that holds a head's width."""
    return max(16, triton.next_power_of_2(width))


@triton.jit
def dot(left, right, total=None):
    """left right + total, left rounded to the type of right."""
    return tl.dot(
        left.to(right.dtype), right, total, input_precision=input_precision(right.dtype),
        out_dtype=sum_type(right.dtype),
    )  # fmt: skip


@triton.jit
def place(heads, length, BLOCK: tl.constexpr):
    """Which block of rows of which head a program owns: the batch, the head, both as one, the first row.

    The last rows of a head start first, since under a causal mask they see the most keys.
    """
    blocks = tl.cdiv(length, BLOCK)
    sequence = tl.program_id(0) // blocks
    start = (blocks - 1 - tl.program_id(0) % blocks) * BLOCK
    return sequence // heads, sequence % heads, sequence.to(tl.int64), start


@triton.jit
def head_of(tensor, batch, head):
    """One head of one sequence; where it starts is counted in 64 bits."""
    sequence_stride, head_stride, row_stride = tensor.strides
    offset = tl.cast(batch, tl.int64) * sequence_stride + tl.cast(head, tl.int64) * head_stride
    return Head(tensor.start + offset, row_stride)


@triton.jit
def sigma_of(numbers, head):
    """A head's σ."""
    return tl.load(numbers.sigma + head * numbers.step)


@triton.jit
def scale_of(numbers, head):
    """A head's s."""
    if numbers.sigma is not None:
        sigma = sigma_of(numbers, head)
        return 1 / (sigma * sigma)
    else:
        return tl.load(numbers.scale + head * numbers.step)


@triton.jit
def norm_of(numbers, head):
    """A head's ν."""
    if numbers.sigma is not None:
        return scale_of(numbers, head)
    else:
        return tl.load(numbers.norm + head * numbers.step)


@triton.jit
def load_block(head, start, length, BLOCK: tl.constexpr, WIDTH: tl.constexpr, EDGE: tl.constexpr):
    """Rows start … start + BLOCK of a head, [BLOCK block_width]; zero past the width; EDGE: and length."""
    row, column = tl.arange(0, BLOCK), tl.arange(0, block_width(WIDTH))
    first = head.start + tl.cast(start, tl.int64) * head.stride
    address = first + row[:, None] * head.stride + column[None, :]
    exists, inside = (start + row < length)[:, None], (column < WIDTH)[None, :]
    if EDGE and block_width(WIDTH) != WIDTH:
        return tl.load(address, mask=exists & inside, other=0.0)
    elif EDGE:
        return tl.load(address, mask=exists, other=0.0)
    elif block_width(WIDTH) != WIDTH:
        return tl.load(address, mask=inside, other=0.0)
    else:
        return tl.load(address)


@triton.jit
def load_again(x, row, length, WIDTH: tl.constexpr):
    """A program's own rows, [BLOCK block_width], once more: held through its loops they crowd out sums.

    A policy of its own is what tells this load from the first, with which the compiler would merge it.
    """
    column = tl.arange(0, block_width(WIDTH))
    inside = (row < length)[:, None] & (column < WIDTH)[None, :]
    address = x.start + row.to(tl.int64)[:, None] * x.stride + column[None, :]
    return tl.load(address, mask=inside, other=0.0, eviction_policy="evict_first")


@triton.jit
def at_the_end(own, head, row, length, WIDTH: tl.constexpr, AGAIN: tl.constexpr):
    """A program's own rows, in the type of sums; AGAIN: read, where its loops have no registers for them."""
    rows = load_again(head, row, length, WIDTH) if AGAIN else own
    return rows.to(sum_type(own.dtype))


@triton.jit
def load_vector(vector, start, length, other, BLOCK: tl.constexpr, EDGE: tl.constexpr):
    """Entries start … start + BLOCK of a head's vector, [BLOCK]; EDGE: ``other`` past its end."""
    index = start + tl.arange(0, BLOCK)
    if EDGE:
        return tl.load(vector + index, mask=index < length, other=other)
    else:
        return tl.load(vector + index)


@triton.jit
def store_block(head, block, start, length, WIDTH: tl.constexpr):
    """Write a block from row start of a head on, those of its rows that exist."""
    row, column = tl.arange(0, block.shape[0]), tl.arange(0, block.shape[1])
    first = head.start + tl.cast(start, tl.int64) * head.stride
    address = first + row[:, None] * head.stride + column[None, :]
    inside = (start + row < length)[:, None] & (column < WIDTH)[None, :]
    tl.store(address, block.to(head.start.dtype.element_ty), mask=inside)


@triton.jit
def span_of(row, mask, batch, rows, columns):
    """The columns [low, high) that each row of a block may see; none for rows past the end.

    The last row sits on the last column.
    """
    if mask.first is not None:
        low = tl.load(
            mask.first + batch.to(tl.int64) * mask.stride + row,
            mask=row < rows,
            other=0,
        )
        high = tl.load(mask.last + batch.to(tl.int64) * mask.stride + row, mask=row < rows, other=0)
    elif mask.left is not None:
        shift = columns - rows
        low = tl.maximum(row + shift - mask.left, 0)
        high = tl.minimum(row + shift + mask.right + 1, columns)
    else:
        low = tl.zeros_like(row)
        high = tl.zeros_like(row) + columns
    return low, tl.where(row < rows, high, 0)


@triton.jit
def loop_bounds(low, high, row, length, columns, BLOCK_COLUMNS: tl.constexpr):
    """Where a block of rows starts its loop over columns, the part of it without edges, and where it stops.

    Returns start ≤ inner_start ≤ inner_stop ≤ stop. start, inner_start and inner_stop are multiples of
    BLOCK_COLUMNS; every row of the block that exists sees all columns of [inner_start, inner_stop).
    """
    exists = (row < length) & (low < high)
    start = tl.min(tl.where(exists, low, columns))
    stop = tl.max(tl.where(exists, high, 0))
    start = start // BLOCK_COLUMNS * BLOCK_COLUMNS
    common_low = tl.max(tl.where(row < length, tl.where(low < high, low, columns), 0))
    common_high = tl.min(tl.where(row < length, high, columns))
    inner_start = (common_low + BLOCK_COLUMNS - 1) // BLOCK_COLUMNS * BLOCK_COLUMNS
    inner_stop = common_high // BLOCK_COLUMNS * BLOCK_COLUMNS
    stop = tl.maximum(stop, start)
    inner_start = tl.minimum(
        tl.maximum(inner_start, start),
        (stop + BLOCK_COLUMNS - 1) // BLOCK_COLUMNS * BLOCK_COLUMNS,
    )
    inner_stop = tl.maximum(inner_stop, inner_start)
    return start, inner_start, inner_stop, stop


@triton.jit
def walk_of(
    row, mask, batch, rows, columns, BLOCK: tl.constexpr, BLOCK_EDGE: tl.constexpr = None
):  # fmt: skip
    """The walk of a block of rows over blocks of columns; without a mask those at the end are BLOCK_EDGE."""
    low, high = span_of(row, mask, batch, rows, columns)
    if mask.first is not None or mask.left is not None:
        start, inner_start, inner_stop, stop = loop_bounds(low, high, row, rows, columns, BLOCK)
        edges = (inner_start - start) // BLOCK + (tl.maximum(stop - inner_stop, 0) + BLOCK - 1) // BLOCK
        return Walk(low, high, start, inner_start, inner_stop, edges)
    else:
        EDGE: tl.constexpr = BLOCK if BLOCK_EDGE is None else BLOCK_EDGE
        inner_stop = columns // BLOCK * BLOCK
        return Walk(
            low,
            high,
            0,
            0,
            inner_stop,
            (tl.maximum(columns - inner_stop, 0) + EDGE - 1) // EDGE,
        )


@triton.jit
def edge_block(walk, k, BLOCK: tl.constexpr):
    """Where block k of the columns that need a mask starts: the inner ones are left out."""
    at = walk.start + k * BLOCK
    return tl.where(at >= walk.inner_start, at + walk.inner_stop - walk.inner_start, at)


@triton.jit
def seen(walk, at, BLOCK: tl.constexpr):
    """Which of the columns at … at + BLOCK each row sees, [rows BLOCK]."""
    column = (at + tl.arange(0, BLOCK))[None, :]
    return (column >= walk.low[:, None]) & (column < walk.high[:, None])


@triton.jit
def lane_sums(block):
    """Row sums in four parts, [rows 4]: one thread holds all of a part, so that threads exchange nothing."""
    return tl.sum(tl.sum(tl.reshape(block, [block.shape[0], block.shape[1] // 8, 4, 2]), 3), 1)


@triton.jit
def half_norm(block, factor):
    """factor/2 |x_i|² of each row of a block, in the type of sums, from the numbers as they were given."""
    wide = block.to(sum_type(block.dtype))
    return 0.5 * factor * tl.sum(wide * wide, 1)


@triton.jit
def load_pairs(pointer, start, BLOCK: tl.constexpr):
    """Two numbers of each row from start on, side by side in memory: one wide load instead of two narrow."""
    both = tl.load(pointer + 2 * start + tl.arange(0, 2 * BLOCK))
    return tl.split(tl.reshape(both, [BLOCK, 2]))
