"""What chapter 19 says of lags and tiles: signed tables, turned rows, two neighbors, Horner's rule."""

import pytest
import torch
import triton
import triton.language as tl

import gkalib
from gkalib.kernels import DecayingPeriodicBank, ExpDot
from gkalib.smoothing.fused import lag_bias
from gkalib.smoothing.fused.lag_bias import add_lags, end_lags, lag_scores, lag_scores_transposed, upright
from gkalib.smoothing.fused.scores import LOG2_E
from tests.tolerance import equal

F64 = torch.float64
INTERPRETED = pytest.mark.skipif(torch.cuda.is_available(), reason="float64 programs run in the interpreter")


def _diagonals(matrix: torch.Tensor) -> torch.Tensor:
    """Sums of [n m] along lags 1 − m … n − 1."""
    rows, columns = matrix.shape
    return torch.stack([matrix.diagonal(-lag).sum() for lag in range(1 - columns, rows)])


@triton.jit
def tile_kernel(
    table, out, across, row_start, column_start, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    r, c = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    tile = lag_scores(table, row_start, column_start, columns, ROWS, COLUMNS)
    tl.store(out + r[:, None] * COLUMNS + c[None, :], tile)
    turned = lag_scores_transposed(table, row_start, column_start, columns, ROWS, COLUMNS)
    tl.store(across + c[:, None] * ROWS + r[None, :], turned)


@triton.jit
def sum_kernel(matrix, slice, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """All lags of a matrix of whole tiles, by one program; the slice starts at lag −columns."""
    r, c = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    for row in range(0, rows, ROWS):
        before = tl.zeros([ROWS // COLUMNS, COLUMNS], tl.float64)
        for column in range(0, columns, COLUMNS):
            at = matrix + (row + r)[:, None] * columns + (column + c)[None, :]
            before = add_lags(slice, row - column + columns, tl.load(at), before, ROWS, COLUMNS)
        end_lags(slice, row + COLUMNS, before, ROWS, COLUMNS)


def test_a_bank_is_a_table_of_signed_lags():
    bank = DecayingPeriodicBank(2).double()
    query, key = torch.randn(1, 2, 6, 8, dtype=F64), torch.randn(1, 2, 9, 8, dtype=F64)
    table = bank.lag_table(9)
    signed = torch.cat([table[:, 1:].flip(-1), table], -1)  # lags −8 … 8
    # Queries are the last six of nine tokens.
    lag = torch.arange(3, 9)[:, None] - torch.arange(9)
    scores = query @ key.mT / 8**0.5 + signed[:, lag + 8]
    equal(gkalib.attention_weights(query, key, ExpDot() * bank), scores.softmax(-1))


@INTERPRETED
@pytest.mark.parametrize(("row", "column"), [(0, 0), (16, 0), (0, 32), (32, 16)])
def test_a_tile_reads_one_stretch_of_the_table(row, column):
    rows, columns = 48, 64
    table = torch.randn(1, rows + columns - 1, dtype=F64)
    lag = torch.arange(rows)[:, None] - torch.arange(columns)
    full = LOG2_E.value * table[0, lag + columns - 1]
    out, across = torch.empty(16, 32, dtype=F64), torch.empty(32, 16, dtype=F64)
    given = lag_bias.padded(table)
    tile_kernel[(1,)](given, out, across, row, column, columns, ROWS=16, COLUMNS=32)
    equal(out, full[row : row + 16, column : column + 32])
    equal(across, out.mT)


@INTERPRETED
@pytest.mark.parametrize("tile", [(16, 16), (32, 16)])
@pytest.mark.parametrize("sides", [(32, 16), (64, 32), (32, 64)])
def test_two_neighbors_complete_a_block_of_lags(sides, tile):
    matrix = torch.randn(sides, dtype=F64)
    slice = torch.zeros(sum(sides), dtype=F64)
    sum_kernel[(1,)](matrix, slice, *sides, ROWS=tile[0], COLUMNS=tile[1])
    equal(slice[1:], _diagonals(matrix))
    assert slice[0] == 0


@triton.jit
def turn_kernel(tile, out, BLOCK: tl.constexpr):
    r, t = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    tl.store(out + r * BLOCK + t, upright(tl.load(tile + r * BLOCK + t), BLOCK, BLOCK))


@INTERPRETED
def test_turned_rows_have_their_lags_upright():
    lag = (torch.arange(32)[:, None] - torch.arange(32)).double()
    out = torch.empty(32, 32, dtype=F64)
    turn_kernel[(1,)](lag, out, BLOCK=32)
    r, t = torch.arange(32)[:, None], torch.arange(32)
    assert torch.equal(out, torch.where(r >= t, t, t - 32).double())


@INTERPRETED
@pytest.mark.parametrize("length", [31, 64])
def test_the_gradient_of_a_lag_is_the_sum_of_its_diagonal(length):
    """Slopes from autograd summed along diagonals, against the fused gradient of a table."""
    query, key, value, probe = torch.randn(4, 1, 1, length, 16, dtype=F64)
    table = torch.randn(1, length, dtype=F64, requires_grad=True)

    class Given(gkalib.kernels.Kernel):
        of_lag = True

        def form(self, head_dim):
            return gkalib.kernels.Form(lag_table=lambda n, m: table[:, torch.arange(1 - n, m).abs()])

        def log(self, query, key, lag=None):
            return table[:, lag.abs()]

    out = gkalib.smooth(query, key, value, ExpDot() * Given(), method="fused")
    (have,) = torch.autograd.grad((out * probe).sum(), table)
    lag = torch.arange(length)[:, None] - torch.arange(length)
    scores = (query @ key.mT / 4 + table[0, lag.abs()])[0, 0].detach().requires_grad_()
    (slopes,) = torch.autograd.grad((scores.softmax(-1) @ value[0, 0] * probe[0, 0]).sum(), scores)
    sums = _diagonals(slopes)
    want = sums[length - 1 :] + torch.cat([sums.new_zeros(1), sums[: length - 1].flip(0)])
    equal(have[0], want)


def test_horner_gives_the_slope():
    scores = torch.randn(7, 9, dtype=F64, requires_grad=True)
    a, b, grad = (
        torch.randn(3, 9, 4, dtype=F64),
        torch.randn(3, 9, 4, dtype=F64),
        torch.randn(7, 4, dtype=F64),
    )
    features = sum((m * scores).cos() @ a[m - 1] + (m * scores).sin() @ b[m - 1] for m in (1, 2, 3))
    (want,) = torch.autograd.grad((features * grad).sum(), scores)
    z, bracket = torch.exp(1j * scores.detach()), 0
    for m in (3, 2, 1):
        bracket = z * (bracket + m * torch.complex(grad @ b[m - 1].mT, grad @ a[m - 1].mT))
    equal(bracket.real, want)
