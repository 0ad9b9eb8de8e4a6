"""The labeled equations of chapter 27 that no test of the library covers."""

import math

import pytest
import torch

import gkalib
from gkalib.kernels import DecayingPeriodicBank
from gkalib.masks import Causal, Window
from tests.tolerance import equal

COUNT = 24


def test_a_term_has_the_period_pi_tau():
    tau = 3.7
    bank = DecayingPeriodicBank(1, 1, length=1e12, tau=(tau, tau)).double()
    lag = torch.linspace(0, 20, 41, dtype=torch.float64)[None]
    one, many = torch.zeros(1, 1, 1, 1, dtype=torch.float64), torch.zeros(1, 1, 41, 1, dtype=torch.float64)
    at = bank.log(one, many, lag)
    # The parameter is a float32 logarithm, so the period is known to seven digits.
    torch.testing.assert_close(bank.log(one, many, lag + math.pi * tau), at, rtol=1e-5, atol=1e-6)
    assert (bank.log(one, many, lag + tau) - at).abs().max() > 0.1


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
