r"""Tables of lags: formed of a bank, read by programs as a bias, and their gradients.

A bank of decaying periodic kernels, $G(\Delta) = \sum_m \sigma_m^2 w_m(\Delta)$ with
$w_m = e^{-\Delta / \ell_m} \exp(-2 \alpha_m^2 \sin^2(\Delta / \tau_m))$, is the same at both signs of a lag
and each is formed once, by one program.

The gradient of a table's entry of lag l is the sum of $dS_{ij}$ along $i - j = l$. A program turns each row
of a tile of dS by its own number, so that diagonals stand upright; a sum down the columns gives one number
per lag, which the next tile goes on with until the last that has the lag adds it to the program's own slice
of memory. Chapter 19 shows it.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from gkalib.kernels import Bank
from gkalib.smoothing.fused.configs import Config
from gkalib.smoothing.fused.launch import dense_rows, derived, empty, launch, statistics
from gkalib.smoothing.fused.scores import LOG2_E

PAD: tl.constexpr = tl.constexpr(256)
"""Entries on either side of a padded table: no block is larger, so none reads outside it."""
SLICES = 2048
"""About so many slices, or 4 a head, are enough: their memory grows with n + m, not with n × m."""
TABLE = Config(16, 64)
"""Lags and terms of a block of the program that adds a bank's terms up."""
GRADIENT = Config(256, 4)
"""Likewise of the one that adds lags up: a few terms each, so that there are programs enough."""


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
    out = empty(table, heads, length + 2 * PAD.value)
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
    return statistics(query, batch, heads, triton.cdiv(blocks, launches), length)


def sum_slices(slices: Tensor, rows: int, keys: int, block: Config) -> Tensor:
    """The table's gradient ``[h n+m−1]``; a slice starts at the lag of row 0 and the last block's end."""
    start = triton.cdiv(keys, block.columns) * block.columns - keys + 1
    return derived(lambda slices: slices[..., start : start + rows + keys - 1].sum((0, 2)), slices)


class Terms(NamedTuple):
    """Some terms of a head, ``[1 BLOCK]``; past the last σ is 0."""

    alpha: Any
    sigma: Any
    length: Any
    tau: Any


@triton.jit
def load_terms(bank, at, inside, ACC: tl.constexpr):
    """The terms at these places, in the type of sums."""
    alpha = tl.load(bank.alpha + at, mask=inside, other=0.0).to(ACC)
    sigma = tl.load(bank.sigma + at, mask=inside, other=0.0).to(ACC)
    log_length = tl.load(bank.log_length + at, mask=inside, other=0.0).to(ACC)
    log_tau = tl.load(bank.log_tau + at, mask=inside, other=0.0).to(ACC)
    return Terms(alpha, sigma, tl.exp(log_length), tl.exp(log_tau))


@triton.jit
def weights_of(terms, lag):
    """w_m(Δ) for lags ``[ROWS 1]``, [ROWS BLOCK], and the phases Δ/τ_m."""
    phase = lag / terms.tau
    sharp = terms.alpha * tl.sin(phase)
    return tl.exp(-lag / terms.length) * tl.exp(-2 * sharp * sharp), phase


@triton.jit
def bank_table_kernel(
    bank, table, lags, terms, queries, keys, blocks, BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr
):  # fmt: skip
    """G at one block of lags Δ of one head, written at Δ and at −Δ; or of the lags of one query, as given."""
    head, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    ACC: tl.constexpr = table.dtype.element_ty
    place = block * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    lag = place if lags is None else tl.abs(tl.load(lags + place, mask=place < keys, other=0))
    total = tl.zeros([BLOCK_ROWS], ACC)
    for first in tl.range(0, terms, BLOCK_COLUMNS):
        term = first + tl.arange(0, BLOCK_COLUMNS)[None, :]
        own = load_terms(bank, head * terms + term, term < terms, ACC)
        weight, _ = weights_of(own, lag[:, None].to(ACC))
        total += tl.sum(own.sigma * own.sigma * weight, 1)
    zero = table + head.to(tl.int64) * (queries + keys - 1) + queries - 1
    tl.store(zero + place, total, mask=place < keys)
    tl.store(zero - place, total, mask=place < queries)


@triton.jit
def bank_gradient_kernel(
    grad_table, bank, grad, terms, queries, keys, blocks, BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):  # fmt: skip
    """The gradients of one block of terms of one head, from the table's at all its lags."""
    head, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    ACC: tl.constexpr = grad_table.dtype.element_ty
    term = block * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)[None, :]
    at, inside = head * terms + term, term < terms
    own = load_terms(bank, at, inside, ACC)
    zero = grad_table + head.to(tl.int64) * (queries + keys - 1) + queries - 1
    # of g w, g w sin², g w Δ and g w Δ sin cos, each [BLOCK_ROWS BLOCK_COLUMNS], where g is dL/dG(Δ)
    plain = tl.zeros([BLOCK_ROWS, BLOCK_COLUMNS], ACC)
    sharp, far, turned = plain, plain, plain
    for first in tl.range(0, tl.maximum(queries, keys), BLOCK_ROWS):
        lag = first + tl.arange(0, BLOCK_ROWS)[:, None]
        # [BLOCK_ROWS 1]; lag 0 has one place
        given = tl.load(zero + lag, mask=lag < keys, other=0.0)
        given += tl.load(zero - lag, mask=(lag > 0) & (lag < queries), other=0.0)
        lag = lag.to(ACC)
        weight, phase = weights_of(own, lag)
        sine, part = tl.sin(phase), given * weight
        plain += part
        sharp += part * sine * sine
        far += part * lag
        turned += part * lag * sine * tl.cos(phase)
    square = own.sigma * own.sigma
    tl.store(grad.alpha + at, -4 * own.alpha * square * tl.sum(sharp, 0)[None, :], mask=inside)
    tl.store(grad.sigma + at, 2 * own.sigma * tl.sum(plain, 0)[None, :], mask=inside)
    tl.store(grad.log_length + at, square / own.length * tl.sum(far, 0)[None, :], mask=inside)
    slope = 4 * own.alpha * own.alpha * square / own.tau
    tl.store(grad.log_tau + at, slope * tl.sum(turned, 0)[None, :], mask=inside)


def bank_table(bank: Bank, queries: int, keys: int, lags: Tensor | None = None) -> Tensor:
    """G at the lags 1 − n … m − 1, ``[h n+m−1]``, in the type of sums; or at m given ones, for one query."""
    bank = Bank(*(derived(Tensor.contiguous, parameter) for parameter in bank))
    heads, terms = bank.alpha.shape
    table = statistics(bank.alpha, heads, queries + keys - 1)
    blocks = triton.cdiv(max(queries, keys), TABLE.rows)
    sizes = {"terms": terms, "queries": queries, "keys": keys, "blocks": blocks}
    launch(bank_table_kernel, heads * blocks, TABLE, bank=bank, table=table, lags=lags, **sizes)
    return table


def bank_gradient(grad_table: Tensor, bank: Bank, queries: int) -> Bank:
    """The gradients of the parameters, each ``[h M]``; sums run in one order, so the same bits every time."""
    bank = Bank(*(derived(Tensor.contiguous, parameter) for parameter in bank))
    heads, terms = bank.alpha.shape
    grad = Bank(*(empty(parameter, *parameter.shape) for parameter in bank))
    blocks = triton.cdiv(terms, GRADIENT.columns)
    keys = grad_table.shape[1] - queries + 1
    sizes = {"terms": terms, "queries": queries, "keys": keys, "blocks": blocks}
    given = {"grad_table": derived(Tensor.contiguous, grad_table), "bank": bank, "grad": grad}
    launch(bank_gradient_kernel, heads * blocks, GRADIENT, **given, **sizes)
    return grad
