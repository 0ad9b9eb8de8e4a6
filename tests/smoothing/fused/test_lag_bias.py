"""The layout of a bias by lag, and its gradient by turning."""

import pytest
import torch
import triton
import triton.language as tl

from gkalib.smoothing.fused import lag_bias
from gkalib.smoothing.fused.configs import Config, forced
from gkalib.smoothing.fused.launch import LAUNCHES
from gkalib.smoothing.spans import Spans
from tests.smoothing.fused.formula import random_inputs
from tests.smoothing.fused.test_backward import FLOAT64, assert_same


@triton.jit
def tile_kernel(table, tile, turned, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The bias of rows 4 … and columns 6 …, and of its transpose; a tile turned upright."""
    row, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    place = row[:, None] * COLUMNS + column[None, :]
    tl.store(tile + place, lag_bias.lag_scores(table, 4, 6, columns, ROWS, COLUMNS))
    transposed = lag_bias.lag_scores_transposed(table, 4, 6, columns, ROWS, COLUMNS)
    tl.store(tile + ROWS * COLUMNS + place, tl.trans(transposed))
    tl.debug_barrier()
    tl.store(turned + place, lag_bias.upright(tl.load(tile + place), ROWS, COLUMNS))


def test_a_tile_of_the_table(device: torch.device):
    """Entry (i, j) is the lag i − j, in base 2; turned, each column is one lag or that lag less a block."""
    rows, columns, block = 20, 40, 16
    table = torch.randn(1, rows + columns - 1, device=device)
    tile, turned = torch.empty(2, block, block, device=device), torch.empty(block, block, device=device)
    tile_kernel[(1,)](lag_bias.padded(table), tile, turned, columns, ROWS=block, COLUMNS=block)
    i, j = torch.arange(block)[:, None] + 4, torch.arange(block) + 6
    exact = (table[0, i - j + columns - 1] / torch.log(torch.tensor(2.0))).to(device)
    torch.testing.assert_close(tile[0], exact)
    assert torch.equal(tile[0], tile[1])
    for row in range(block):
        assert torch.equal(turned[row], tile[0, row].flip(0).roll(row + 1))


@FLOAT64
@pytest.mark.parametrize("spans", [Spans(300, 300), Spans(300, 0), Spans(20, 3)], ids=str)
def test_blocks_that_share_slices(spans: Spans, monkeypatch: pytest.MonkeyPatch):
    """With four slices a head, seven blocks of rows take two launches, and the second adds to the first."""
    monkeypatch.setattr(lag_bias, "SLICES", 1)
    before = LAUNCHES["smooth_backward_query_kernel"]
    with forced(Config(16, 16)):
        assert_same(random_inputs(100, 50, spans, heads=1, groups=1, batch=2, table=True))
    assert LAUNCHES["smooth_backward_query_kernel"] - before == 2


def test_memory_grows_with_the_length():
    """Twice the tokens, twice the slices' memory at most."""
    sizes = [
        lag_bias.new_slices(torch.empty(1, 8, length, 16, device="meta"), length, Config(64, 32)).numel()
        for length in (16384, 32768, 65536)
    ]
    assert sizes[1] <= 2 * sizes[0] and sizes[2] <= 2 * sizes[1]
