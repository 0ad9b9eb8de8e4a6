"""What chapter 9 proves: the size of Fourier sums, additivity, one-hot projections."""

import math

import pytest
import torch
from torch import Tensor

from gkalib.normalizers import Fourier, RowOperator, Simplex, Units
from tests.tolerance import equal

F64 = torch.float64


def _mixed(function, row: Tensor) -> Tensor:
    """All second derivatives of a row's first weight."""
    return torch.autograd.functional.hessian(lambda a: function(a[None, None, None])[0, 0, 0, 0], row)


def test_mixed_second_derivatives_vanish():
    row = torch.randn(6, dtype=F64)
    for rank in (None, 3):
        operator = RowOperator(1, 6, rank=rank, dtype=F64)
        hessian = _mixed(operator, row)
        assert (hessian - hessian.diag().diag()).abs().max() == 0
    for order in ("mix_before", "two_layers"):
        hessian = _mixed(RowOperator(1, 6, rank=3, order=order, dtype=F64), row)
        assert (hessian - hessian.diag().diag()).abs().max() > 1e-3, order
    w = row.softmax(-1)
    hessian = _mixed(lambda a: a.softmax(-1), row)
    equal(hessian[1, 2], 2 * w[0] * w[1] * w[2])


def test_the_variance_of_a_fourier_sum():
    """N G over the draws of the coefficients, whatever the scores are."""
    for spread in (0.2, 3.0):
        row = spread * torch.randn(1, 1, 1, 30, dtype=F64)
        sums = Units(1, 30, 20_000, Fourier(3), init="paper", dtype=F64)(row)
        assert sums.var().item() == pytest.approx(30 * 3, rel=0.05)


def test_the_share_of_a_fourier_sum_that_scores_move():
    for spread in (0.1, 0.5, 1.0):
        terms = Fourier(3).features(spread * torch.randn(200_000, dtype=F64))
        # A coefficient from N(0, 1) gives its term's variance and mean square the same weight.
        share = (terms.var(0).sum() / terms.square().mean(0).sum()).item()
        formula = 1 - sum(math.exp(-((g * spread) ** 2)) for g in (1, 2, 3)) / 3
        assert share == pytest.approx(formula, abs=0.01)


def test_the_share_of_one_hot_rows_follows_the_gap_of_normals():
    for deviation in (2.0, 8.0, 24.0):
        rows = deviation * torch.randn(1, 1, 4000, 197, dtype=F64)
        share = (Simplex()(rows).amax(-1) == 1).double().mean().item()
        assert abs(share - math.exp(-math.sqrt(2 * math.log(197)) / deviation)) < 0.06
