"""What chapter 9 proves: additivity, the space of W, one-hot projections, what a backward pass keeps."""

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


def test_no_operator_beats_the_space_of_w():
    """The error of any rows in a space of dimension r is at least the tail of the target's second moments."""
    target = torch.randn(50, 8, dtype=F64).mul(2).softmax(-1)
    values = torch.linalg.eigvalsh(target.mT @ target).flip(-1)
    best = torch.linalg.eigh(target.mT @ target).eigenvectors[:, -3:]
    equal((target - target @ best @ best.mT).square().sum(), values[3:].sum())
    for _ in range(20):
        operator = RowOperator(1, 8, rank=3, dtype=F64)
        weights = operator(torch.randn(1, 1, 50, 8, dtype=F64))[0, 0]
        space = torch.linalg.qr(operator.mix[0]).Q
        equal(weights, weights @ space @ space.mT)
        nearest = target @ space @ space.mT
        assert (target - weights).square().sum() >= (target - nearest).square().sum() >= values[3:].sum()


def test_a_gap_of_one_makes_a_projection_one_hot():
    rows = 4 * torch.randn(1, 1, 2000, 12, dtype=F64)
    first, second = rows.topk(2, dim=-1).values.unbind(-1)
    one_hot = Simplex()(rows).amax(-1) == 1
    assert torch.equal(one_hot, first - second >= 1)
    assert 0.2 < one_hot.double().mean() < 0.8
    kept = rows[:, :, one_hot[0, 0]].requires_grad_()
    (Simplex()(kept) * torch.randn(12, dtype=F64)).sum().backward()
    assert (kept.grad == 0).all()


def test_the_share_of_one_hot_rows_follows_the_gap_of_normals():
    for deviation in (2.0, 8.0, 24.0):
        rows = deviation * torch.randn(1, 1, 4000, 197, dtype=F64)
        share = (Simplex()(rows).amax(-1) == 1).double().mean().item()
        assert abs(share - math.exp(-math.sqrt(2 * math.log(197)) / deviation)) < 0.06


def _kept(function, *tensors: Tensor) -> int:
    """How many numbers autograd keeps for the backward pass, each storage once, those given not counted."""
    given = {tensor.untyped_storage().data_ptr() for tensor in tensors}
    kept: dict[int, int] = {}
    alive = []

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        alive.append(tensor)
        if storage.data_ptr() not in given:
            kept[storage.data_ptr()] = storage.nbytes() // tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        function(*tensors)
    return sum(kept.values())


def test_numbers_kept_for_the_backward_pass():
    scores = torch.randn(1, 1, 20, 16, requires_grad=True)
    for grid, rank in ((1, 4), (3, 16)):
        coefficients = torch.randn(1, rank, 16, 2 * grid, requires_grad=True)

        def shared(a: Tensor, c: Tensor, grid: int = grid) -> Tensor:
            return Fourier(grid)(a, c, None)

        def per_unit(a: Tensor, c: Tensor, grid: int = grid, rank: int = rank) -> Tensor:
            angle = a[..., None, :, None].expand(-1, -1, -1, rank, -1, 1) * torch.arange(1, grid + 1)
            cos, sin = c[:, None].chunk(2, dim=-1)
            return (angle.cos() * cos + angle.sin() * sin).sum((-2, -1))

        assert torch.allclose(shared(scores, coefficients), per_unit(scores, coefficients), atol=1e-4)
        table = rank * 16 * 2 * grid
        assert 0 <= _kept(shared, scores, coefficients) - 3 * grid * 20 * 16 <= table + grid
        assert abs(_kept(per_unit, scores, coefficients) - 3 * grid * rank * 20 * 16) <= grid
