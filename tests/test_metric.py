"""A learned metric against its formula, set by set, and against leaving readings out in fact."""

import pytest
import torch

from gkalib import NadarayaWatson
from gkalib.regression import metric
from tests.tolerance import agree


def places(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


X, Y, QUERIES = places(2, 1, 9, 3), places(2, 1, 9, 1, seed=1), places(2, 1, 4, 3, seed=2)
MAPS = places(2, 2, 3, seed=3)


def formula(x, y, queries, A):
    expected = []
    for each, readings, asked, matrix in zip(x[:, 0], y[:, 0], queries[:, 0], A, strict=True):
        steps = (asked[:, None] - each) @ matrix.mT
        kappa = (-steps.square().sum(-1) / 2).exp()
        expected.append(kappa @ readings / kappa.sum(1, keepdim=True))
    return torch.stack(expected)[:, None]


def test_predicts_with_the_distance_of_mapped_places():
    exact = formula(X, Y, QUERIES, MAPS)
    agree(metric.predict(X, Y, QUERIES, MAPS), exact, exact)


@pytest.mark.parametrize("width", [1, 3])
def test_a_map_of_two_axes_is_the_logarithm_of_a_diagonal(width):
    logs = places(2, width, seed=4)
    exact = formula(X, Y, QUERIES, torch.diag_embed(logs.exp().expand(2, 3)))
    agree(metric.predict(X, Y, QUERIES, logs), exact, exact)


def test_leaves_each_reading_out():
    found = metric.leave_one_out(X, Y, MAPS)
    for i in range(9):
        rest = [j for j in range(9) if j != i]
        exact = formula(X[:, :, rest], Y[:, :, rest], X[:, :, i : i + 1], MAPS)
        agree(found[:, :, i : i + 1], exact, exact)


def test_learning_lowers_the_error_of_every_set_and_leaves_the_start():
    start = MAPS.clone()
    learned = metric.learn(X, Y, start, steps=30, rate=0.05)
    before, after = (
        (metric.leave_one_out(X, Y, A) - Y).square().mean(dim=(1, 2, 3)) for A in (start, learned)
    )
    assert (after < before).all() and torch.equal(start, MAPS)


def test_one_bandwidth_learns_as_low_a_score_as_the_search():
    x = torch.linspace(0, 1, 80, dtype=torch.float64)[None, None, :, None]
    y = torch.sin(6 * x) + 0.3 * places(1, 1, 80, 1, seed=5)
    learned = metric.learn(x, y, torch.zeros(1, 1, dtype=torch.float64), steps=200, rate=0.05)
    found = NadarayaWatson().fit(x[0, 0].numpy(), y[0, 0, :, 0].numpy())
    score = (metric.leave_one_out(x, y, learned) - y).square().mean().item()
    assert score == pytest.approx(found.loo_score_, rel=1e-3)  # near the minimum the score is flat


def test_a_linear_function_shows_its_direction():
    slope = torch.tensor([[[3.0, 0.0, -4.0]], [[0.0, 2.0, 0.0]]], dtype=torch.float64)
    row = metric.linear_direction(X, X @ slope[:, None].mT, 0.1)
    exact = 10 * slope / slope.norm(dim=2, keepdim=True)
    torch.testing.assert_close(row, exact)


@pytest.mark.parametrize("shape", [(2, 2), (3, 3), (2, 2, 1), (2,), (2, 1, 2, 3)])
def test_a_map_of_another_size_is_refused(shape):
    with pytest.raises(ValueError, match=r"metric: A is .* does not fit places \[2, 1, 4, 3\]"):
        metric.predict(X, Y, QUERIES, torch.ones(shape, dtype=torch.float64))


def test_a_direction_needs_one_reading_a_place():
    with pytest.raises(ValueError, match=r"one reading a place, y \[2, 1, 9, 3\] has 3"):
        metric.linear_direction(X, X, 0.1)
