r"""A bias by lag in the programs' own layout, and its gradient: tiles sheared so that lags become columns.

The gradient of the entry of lag l is the sum of $dS_{ij}$ along $i - j = l$. A program turns each row of a
tile of dS by its own number, so that diagonals stand upright; a sum down the columns gives one number
per lag, which the next tile goes on with until the last that has the lag adds it to the program's own slice
of memory. Chapter 19 shows it.
"""

import triton
import triton.language as tl
from torch import Tensor

from gkalib.smoothing.fused.configs import Config
from gkalib.smoothing.fused.launch import dense_rows, launch, statistics_type
from gkalib.smoothing.fused.scores import LOG2_E

PAD: tl.constexpr = tl.constexpr(256)
"""Entries on either side of a padded table: no block is larger, so none reads outside it."""
SLICES = 2048
"""About so many slices, or 4 a head, are enough: their memory grows with n + m, not with n × m."""


@triton.jit
def lag_scores(table, row_start, column_start, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The bias of a block of rows and columns, [ROWS COLUMNS]; table points at one head's padded table.

    Row i and column j of a problem with this many columns are at entry i − j + columns − 1 + PAD.
    """
    corner = table + (row_start - column_start + columns - 1 + PAD)
    return tl.load(corner + tl.arange(0, ROWS)[:, None] - tl.arange(0, COLUMNS)[None, :])


@triton.jit
def lag_scores_transposed(table, row_start, column_start, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The same block as lag_scores with the columns first, [COLUMNS ROWS]."""
    corner = table + (row_start - column_start + columns - 1 + PAD)
    return tl.load(corner + tl.arange(0, ROWS)[None, :] - tl.arange(0, COLUMNS)[:, None])


@triton.jit
def upright(tile, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Each row r of a [ROWS COLUMNS] tile turned by r: entry (r, t) is the tile's (r, r − t mod COLUMNS).

    Read from two copies side by side, the places of a column are as far apart in each row, without a mod.
    """
    row, column = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    twice = tl.reshape(tl.permute(tl.join(tile, tile), (0, 2, 1)), [2 * ROWS * COLUMNS])
    place = row * (2 * COLUMNS) + COLUMNS + row % COLUMNS - column
    return tl.reshape(tl.gather(twice, tl.reshape(place, [ROWS * COLUMNS]), 0), [ROWS, COLUMNS])


@triton.jit
def add_lags(own_slice, lag, tile, before, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Add a tile's sums along its diagonals to a program's slice, where lag is that of its first entry.

    In square q of the turned tile column t holds lag t + q COLUMNS in its rows r ≥ t, and COLUMNS less above.
    Only the highest COLUMNS lags are complete: the tile COLUMNS further on has the others too. Its ``before``
    is what is returned, [ROWS / COLUMNS, COLUMNS]; ``end_lags`` stores the last one.
    """
    SQUARES: tl.constexpr = ROWS // COLUMNS
    index = tl.arange(0, COLUMNS)
    square = tl.arange(0, SQUARES)
    turned = tl.reshape(upright(tile, ROWS, COLUMNS), [SQUARES, COLUMNS, COLUMNS])
    # [SQUARES COLUMNS] twice
    below = tl.sum(tl.where((index[:, None] >= index[None, :])[None, :, :], turned, 0.0), 1)
    above = tl.sum(turned, 1) - below
    below += before
    here = own_slice + lag + (SQUARES - 1) * COLUMNS + index
    complete = tl.sum(tl.where(square[:, None] == SQUARES - 1, below, 0.0), 0)
    tl.store(here, tl.load(here) + complete)
    if SQUARES > 1:
        after = (square[:, None] + 1 == square[None, :])[:, :, None]
        above += tl.sum(tl.where(after, below[:, None, :], 0.0), 0)
    return above


@triton.jit
def end_lags(own_slice, lag, before, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Add what ``add_lags`` left over from a tile to the slice; lag is that of the tile's first entry."""
    square = tl.arange(0, ROWS // COLUMNS)[:, None]
    for k in tl.static_range(ROWS // COLUMNS):
        here = own_slice + lag + (k - 1) * COLUMNS + tl.arange(0, COLUMNS)
        tl.store(here, tl.load(here) + tl.sum(tl.where(square == k, before, 0.0), 0))


@triton.jit
def pad_table_kernel(table, out, length, blocks, table_stride, BLOCK_ROWS: tl.constexpr):
    """One block of a head's padded table."""
    head, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    at = block * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    lag = at - PAD
    # [BLOCK_ROWS]
    own = tl.load(table + head.to(tl.int64) * table_stride + lag, mask=(lag >= 0) & (lag < length), other=0.0)
    pitch = length + 2 * PAD
    tl.store(out + head.to(tl.int64) * pitch + at, own * LOG2_E, mask=at < pitch)


def padded(table: Tensor) -> Tensor:
    """The table ``[h n+m−1]`` in base 2, with zeros on either side that blocks read and masks cancel."""
    table = dense_rows(table)
    heads, length = table.shape
    out = table.new_empty(heads, length + 2 * PAD.value)
    block = Config(1024, 1)
    blocks = triton.cdiv(out.shape[1], block.rows)
    launch(
        pad_table_kernel,
        heads * blocks,
        block,
        table=table,
        out=out,
        length=length,
        blocks=blocks,
        table_stride=table.stride(0),
    )
    return out


def new_slices(query: Tensor, keys: int, block: Config) -> Tensor:
    """Memory ``[b h p l]`` for p programs of each head at a time; the next p then add to the same slices.

    The first p find there what was left by others, and begin with zeros.
    """
    batch, heads, rows, _ = query.shape
    blocks = triton.cdiv(rows, block.rows)
    launches = triton.cdiv(blocks, max(4, SLICES // (batch * heads)))
    length = blocks * block.rows + triton.cdiv(keys, block.columns) * block.columns
    shape = (batch, heads, triton.cdiv(blocks, launches), length)
    return query.new_empty(shape, dtype=statistics_type(query))


def sum_slices(slices: Tensor, rows: int, keys: int, block: Config) -> Tensor:
    """The table's gradient ``[h n+m−1]``; a slice starts at the lag of row 0 and the last block's end."""
    start = triton.cdiv(keys, block.columns) * block.columns - keys + 1
    return slices[..., start : start + rows + keys - 1].sum((0, 2))
