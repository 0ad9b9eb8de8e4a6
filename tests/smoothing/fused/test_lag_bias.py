"""The gradient of a bias by lag, by turning."""

import pytest
import torch

from gkalib.smoothing.fused import lag_bias
from gkalib.smoothing.fused.configs import Config, forced
from gkalib.smoothing.fused.launch import LAUNCHES
from gkalib.smoothing.spans import Spans
from tests.smoothing.fused.formula import random_inputs
from tests.smoothing.fused.test_backward import FLOAT64, assert_same


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
