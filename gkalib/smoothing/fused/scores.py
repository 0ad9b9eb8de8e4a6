"""What the fused programs share: where a head starts, how a block is loaded, which keys a row may see."""

import triton
import triton.language as tl

LOG2_E: tl.constexpr = tl.constexpr(1.4426950408889634)
ALL: tl.constexpr = tl.constexpr(0)
BAND: tl.constexpr = tl.constexpr(1)
GIVEN: tl.constexpr = tl.constexpr(2)


@triton.jit
def head_start(batch, head, strides):
    """Where the memory of one head of one sequence starts, counted in 64 bits."""
    return tl.cast(batch, tl.int64) * strides[0] + tl.cast(head, tl.int64) * strides[1]


@triton.jit
def head_number(numbers, head, step, OF_SIGMA: tl.constexpr = False):
    """A head's own number, or with OF_SIGMA σ⁻² of its σ; the step is 0 where one number is for all heads."""
    number = tl.load(numbers + head * step)
    return 1 / (number * number) if OF_SIGMA else number


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
def half_norm(block, c, ACC: tl.constexpr):
    """c/2 |x_i|² of each row of a block, in the type of sums, from the numbers as they were given."""
    wide = block.to(ACC)
    return 0.5 * c * tl.sum(wide * wide, 1)


@triton.jit
def load_block(
    pointer, start, length, stride, WIDTH: tl.constexpr, BLOCK: tl.constexpr, BLOCK_WIDTH: tl.constexpr,
    EDGE: tl.constexpr,
):  # fmt: skip
    """Rows start … start + BLOCK of a head, [BLOCK BLOCK_WIDTH]; zero past the width; EDGE: and length."""
    row = tl.arange(0, BLOCK)
    column = tl.arange(0, BLOCK_WIDTH)
    address = pointer + tl.cast(start, tl.int64) * stride + row[:, None] * stride + column[None, :]
    if EDGE:
        if WIDTH == BLOCK_WIDTH:
            return tl.load(address, mask=(start + row < length)[:, None], other=0.0)
        else:
            inside = (start + row < length)[:, None] & (column < WIDTH)[None, :]
            return tl.load(address, mask=inside, other=0.0)
    else:
        if WIDTH == BLOCK_WIDTH:
            return tl.load(address)
        else:
            return tl.load(address, mask=(column < WIDTH)[None, :], other=0.0)


@triton.jit
def load_vector(vector, start, length, other, BLOCK: tl.constexpr, EDGE: tl.constexpr):
    """Entries start … start + BLOCK of a head's vector, [BLOCK]; EDGE: ``other`` past its end."""
    index = start + tl.arange(0, BLOCK)
    if EDGE:
        return tl.load(vector + index, mask=index < length, other=other)
    else:
        return tl.load(vector + index)


@triton.jit
def store_block(
    pointer, block, start, length, stride, WIDTH: tl.constexpr, BLOCK: tl.constexpr, BLOCK_WIDTH: tl.constexpr
):  # fmt: skip
    """Write rows start … start + BLOCK of a head, those that exist."""
    row = tl.arange(0, BLOCK)
    column = tl.arange(0, BLOCK_WIDTH)
    address = pointer + tl.cast(start, tl.int64) * stride + row[:, None] * stride + column[None, :]
    inside = (start + row < length)[:, None] & (column < WIDTH)[None, :]
    tl.store(address, block.to(pointer.dtype.element_ty), mask=inside)


@triton.jit
def span_of(row, first, last, left, right, shift, length, columns, KIND: tl.constexpr):
    """The columns [low, high) that each row of a block may see; none for rows past ``length``.

    A row sits on column row + shift. first and last point at this sequence's vectors where KIND is GIVEN.
    """
    if KIND == ALL:
        low = tl.zeros_like(row)
        high = tl.zeros_like(row) + columns
    elif KIND == BAND:
        low = tl.maximum(row + shift - left, 0)
        high = tl.minimum(row + shift + right + 1, columns)
    else:
        low = tl.load(first + row, mask=row < length, other=0)
        high = tl.load(last + row, mask=row < length, other=0)
    return low, tl.where(row < length, high, 0)


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
        tl.maximum(inner_start, start), (stop + BLOCK_COLUMNS - 1) // BLOCK_COLUMNS * BLOCK_COLUMNS
    )
    inner_stop = tl.maximum(inner_stop, inner_start)
    return start, inner_start, inner_stop, stop


@triton.jit
def block_loops(
    row, first, last, left, right, shift, length, columns, KIND: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """The span of each row, which columns need no mask, where the others start, how many blocks they fill."""
    low, high = span_of(row, first, last, left, right, shift, length, columns, KIND)
    if KIND == ALL:
        start, inner_start, inner_stop, stop = 0, 0, columns // BLOCK * BLOCK, columns
    else:
        start, inner_start, inner_stop, stop = loop_bounds(low, high, row, length, columns, BLOCK)
    edges = (inner_start - start) // BLOCK + (tl.maximum(stop - inner_stop, 0) + BLOCK - 1) // BLOCK
    return low, high, inner_start, inner_stop, start, edges


@triton.jit
def edge_block(k, start, inner_start, inner_stop, BLOCK: tl.constexpr):
    """Where block k of the columns that need a mask starts: the inner ones are left out."""
    at = start + k * BLOCK
    return tl.where(at >= inner_start, at + inner_stop - inner_start, at)


@triton.jit
def lane_sums(block, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Row sums in four parts, [ROWS 4]: one thread holds all of a part, so that threads exchange nothing."""
    return tl.sum(tl.sum(tl.reshape(block, [ROWS, COLUMNS // 8, 4, 2]), 3), 1)


@triton.jit
def load_pairs(pointer, start, BLOCK: tl.constexpr):
    """Two numbers of each row from start on, side by side in memory: one wide load instead of two narrow."""
    both = tl.load(pointer + 2 * start + tl.arange(0, 2 * BLOCK))
    return tl.split(tl.reshape(both, [BLOCK, 2]))


@triton.jit
def only_spans(weight, at, low, high, BLOCK: tl.constexpr):
    """The weights of columns from ``at`` on, zero outside [low, high)."""
    column = (at + tl.arange(0, BLOCK))[None, :]
    return tl.where((column >= low[:, None]) & (column < high[:, None]), weight, 0.0)
