"""The labeled equations of chapter 27 that no test of the library covers."""

import pytest
import torch

import gkalib
from gkalib.kernels import DecayingPeriodicBank
from gkalib.masks import Causal, Window
from tests.tolerance import equal

COUNT = 24


@pytest.mark.parametrize("reach", [5, 11])
def test_the_regression_on_past_newlines_is_a_smoother(reach):
    newline = (torch.rand(COUNT) < 0.3).double()
    bank = DecayingPeriodicBank(1, 5, length=9.0, tau=(1.5, 8.0)).double()
    ends = torch.arange(reach, COUNT)
    history = newline[ends[:, None] - torch.arange(reach)]
    by_hand = history @ torch.softmax(bank.lag_table(reach)[0], 0)
    empty = torch.zeros(1, 1, COUNT, 1, dtype=torch.float64)
    out = gkalib.smooth(empty, empty, newline[None, None, :, None], bank, mask=Causal() & Window(reach))
    equal(out[0, 0, ends, 0], by_hand)
