"""Attention taken apart into lags and few dimensions: each part is what it says of itself."""

import pytest
import torch

from chapters.experiments.approximations import ARMS, Trial, relative_error, softmax, structure
from gkalib.data import Heads
from gkalib.kernels import ExpDot, PositiveRandom
from gkalib.smoothing import attention_weights, smooth
from tests.tolerance import agree, equal


def _heads(length: int = 24, dim: int = 6) -> Heads:
    return Heads(*(torch.randn(2, 3, length, dim, dtype=torch.float64) for _ in range(3)))


def _cosines(heads: Heads) -> torch.Tensor:
    query, key, _ = structure.unit(heads)
    return query @ key.mT


def test_diagonals_are_summed_by_lag():
    matrix = torch.randn(3, 5, 5, dtype=torch.float64)
    by_hand = [matrix.diagonal(-lag, -2, -1).sum(-1) for lag in range(-4, 5)]
    equal(structure.by_lag(matrix), torch.stack(by_hand, -1))


def test_a_table_is_recovered_from_its_own_attention():
    heads, lag = _heads(), torch.arange(24)[:, None] - torch.arange(24)
    bias = torch.randn(3, 47, dtype=torch.float64)
    content = heads.query @ heads.key.mT / 3
    weights = (content + bias[:, lag + 23]).softmax(-1)
    table = structure.fit_table(weights, content, steps=200)
    found = (content + table.bias[:, lag + 23]).softmax(-1)
    assert (found - weights).abs().max() < 1e-6


def test_the_fit_gives_each_lag_its_weight_and_the_least_relative_entropy():
    weights = attention_weights(*_heads()[:2], ExpDot())
    lag = torch.arange(24)[:, None] - torch.arange(24) + 23

    def entropy(bias):
        return -(weights * bias[:, lag].log_softmax(-1)).sum()

    bias = structure.fit_table(weights, steps=200).bias.detach().requires_grad_()
    found = structure.by_lag(bias[:, lag].softmax(-1).expand_as(weights).sum(0))
    wanted = structure.by_lag(weights.sum(0))
    assert ((found - wanted).abs() < 1e-3 * wanted.max()).all()
    (slope,) = torch.autograd.grad(entropy(bias), bias)
    assert slope.abs().max() < 1e-3 * wanted.max()


def test_lags_explain_all_of_weights_by_lag_and_a_share_of_others():
    lag = torch.arange(24)[:, None] - torch.arange(24) + 23
    by_lag = torch.randn(2, 47, dtype=torch.float64)[:, lag].softmax(-1)
    nearest, explained = structure.explained_by_lags(by_lag, steps=200)
    assert (nearest - by_lag).abs().max() < 1e-6
    equal(explained, torch.ones(2, dtype=torch.float64))
    weights = attention_weights(*_heads()[:2], ExpDot())[0]
    nearest, explained = structure.explained_by_lags(weights, steps=200)
    missing = torch.nn.functional.kl_div(nearest.log(), weights, reduction="none").sum((1, 2))
    uniform = torch.full_like(weights, 1 / 24).log()
    whole = torch.nn.functional.kl_div(uniform, weights, reduction="none").sum((1, 2))
    equal(explained, 1 - missing / whole)
    assert ((explained > 0) & (explained < 1)).all()


def test_the_projection_is_the_best_of_its_rank_and_whole_at_full_width():
    heads = _heads()
    kernel = structure.temperature(heads)
    equal(smooth(*structure.projected(heads, 6), kernel), softmax(heads))
    key = heads.key - heads.key.mean((0, 2), keepdim=True)
    query, key = (part.transpose(0, 1).flatten(1, 2) for part in (heads.query, key))
    left, middle, right = torch.linalg.svd(query @ key.mT, full_matrices=False)
    best = left[..., :2] * middle[:, None, :2] @ right[:, :2]
    few = structure.projected(heads, 2)
    found = few.query.transpose(0, 1).flatten(1, 2) @ few.key.transpose(0, 1).flatten(1, 2).mT
    equal(found, best)


def test_more_features_come_closer_to_the_cosine_and_lags():
    heads, aside = _heads(), _heads()
    exact = structure.cosine_and_lags(heads, aside, 1.0)
    errors = [
        relative_error(structure.kernelized(heads, aside, count, 0), exact).mean() for count in (8, 128, 2048)
    ]
    assert errors[0] > 2 * errors[1] > 4 * errors[2]
    random = PositiveRandom(6, 8, scale=1.0, seed=0, stabilizer="row")
    kernel = random * structure.fit_table(attention_weights(*aside[:2], ExpDot()), _cosines(aside))
    by_transforms = smooth(*structure.unit(heads), kernel, method="toeplitz")
    agree(by_transforms.float(), structure.kernelized(heads, aside, 8, 0), by_transforms.float())


@pytest.mark.parametrize("arm", ["lag-table", "cosine-and-lags", "fft-rpe", "few-dimensions", "fast-gauss"])
def test_arms_run_and_say_what_they_cost(arm):
    heads, aside = _heads(), _heads()
    found = ARMS[arm].approximate(heads, Trial(2, 0, aside, torch.Generator().manual_seed(0)))
    assert 0 < relative_error(found, ARMS[arm].exact(heads)).mean() < 2
    if ARMS[arm].flops is not None:
        assert ARMS[arm].flops(2, heads) > 0
