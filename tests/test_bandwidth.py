"""How the regressions choose a bandwidth: each rule against refitting, weights, copies, large tables."""

import numpy as np
import pytest
import torch

from gkalib import NadarayaWatson
from gkalib.kernels import Epanechnikov, Gaussian, Laplace
from gkalib.regression import base
from tests.test_regression import BOTH, same, table


@BOTH
def test_kfold_equals_refitting_each_fold(regression):
    X, y = table(30, 1)
    model = regression(bandwidth=0.8).fit(X, y)
    fold = np.arange(30) % model.folds
    expected = np.empty(30)
    for left_out in range(model.folds):
        inside = fold == left_out
        expected[inside] = regression(bandwidth=0.8).fit(X[~inside], y[~inside]).predict(X[inside])
    same(model._held_out(0.8, model._folds()).numpy()[:, 0], expected, 1e-9)


@BOTH
@pytest.mark.parametrize("rule", ["loo", "kfold"])
@pytest.mark.parametrize("features", [1, 3])
def test_the_chosen_bandwidth_has_the_lowest_error(regression, rule, features):
    X, _ = table(80, features)
    y = np.sin(X.sum(1) / 3)
    model = regression(bandwidth=rule).fit(X, y)
    held_out = model._alone() if rule == "loo" else model._folds()
    best = model._score(model.bandwidth_, held_out)
    for factor in np.geomspace(0.1, 10, 41):
        assert best <= model._score(model.bandwidth_ * factor, held_out) * (1 + 1e-5)
    if rule == "loo":
        assert best == model.loo_score_


def test_rules_of_thumb():
    X, y = table(50, 2)
    s = X.std(0)
    same(NadarayaWatson(bandwidth="scott").fit(X, y).bandwidth_, s * 50 ** (-1 / 6))
    same(NadarayaWatson(bandwidth="silverman").fit(X, y).bandwidth_, s * 50 ** (-1 / 6))
    X, y = table(50, 1)
    assert NadarayaWatson(bandwidth="silverman").fit(X, y).bandwidth_ == pytest.approx(
        X.std() * (4 / (3 * 50)) ** 0.2
    )


@BOTH
@pytest.mark.parametrize("rule", ["loo", "kfold", "scott", "silverman"])
@pytest.mark.parametrize("factor", [1 / 0.09, 100, 1e-3])
def test_a_common_factor_of_the_weights_does_not_matter(regression, rule, factor):
    X, y = table(80, 1)
    for weight in (np.ones(80), 1 / np.where(np.arange(80) % 2, 0.2, 1.0) ** 2):
        one, other = (
            regression(bandwidth=rule).fit(X, y, sample_weight=each * weight) for each in (1, factor)
        )
        same(one.bandwidth_, other.bandwidth_, 1e-9)
        same(one.predict(X, return_std=True), other.predict(X, return_std=True), 1e-8)
        assert one.loo_score_ == pytest.approx(other.loo_score_)
    same(
        regression(bandwidth=rule).fit(X, y).bandwidth_,
        regression(bandwidth=rule).fit(X, y, np.full(80, factor)).bandwidth_,
    )


@BOTH
def test_weights_of_one_over_the_variance_do_not_fit_the_noise(regression):
    """Two instruments: what stays of a heavy reading must not predict it."""
    rng = np.random.default_rng(0)
    x, s = rng.uniform(0, 6, 300), np.where(np.arange(300) % 2, 0.1, 0.5)
    model = regression().fit(x[:, None], np.sin(x) + s * rng.normal(size=300), sample_weight=1 / s**2)
    grid = np.linspace(0.3, 5.7, 99)
    assert np.sqrt(np.mean((model.predict(grid[:, None]) - np.sin(grid)) ** 2)) < 0.05
    assert model.noise_ == pytest.approx(
        1, rel=0.15
    )  # of a reading of weight one: the weights are known here


@BOTH
def test_copies_of_a_row_are_left_out_together(regression):
    X, y = table(40, 1)
    once, twice = regression().fit(X, y), regression().fit(np.tile(X, (2, 1)), np.tile(y, 2))
    same(twice.bandwidth_, once.bandwidth_, 1e-9)
    same(twice.leave_one_out(), np.tile(once.leave_one_out(), 2), 1e-9)
    same(twice.predict(X, return_std=True), once.predict(X, return_std=True), 1e-9)
    # Where places have several responses, some are alike by chance: each is a reading of its own.
    X, y = np.array([0.0, 0.0, 0.0, 1.0, 1.0])[:, None], np.array([1.0, 1.0, 0.0, 1.0, 0.0])
    expected = NadarayaWatson(bandwidth=0.5).fit(X[1:], y[1:]).predict(X[:1])
    same(NadarayaWatson(bandwidth=0.5).fit(X, y).leave_one_out()[:1], expected)


@BOTH
@pytest.mark.parametrize("kernel", [Gaussian, Laplace, Epanechnikov, lambda h: Gaussian(0.1 * h)])
@pytest.mark.parametrize("heavy", [False, True])
def test_rounded_places_predict_as_exact_ones_do(regression, kernel, heavy):
    rng = np.random.default_rng(3)
    X = rng.standard_cauchy((500, 1)) if heavy else rng.normal(size=(500, 1))
    y = np.stack([1e3 + np.sin(X[:, 0]) + 0.3 * rng.normal(size=500), X[:, 0]], 1)
    model = regression(kernel, bandwidth=1.0).fit(X, y, sample_weight=rng.uniform(0.5, 9, 500))
    fold, scale = model._alone(), np.quantile(np.abs(X), 0.7)
    for h in scale * np.array([0.01, 0.3, 1.0, 5.0]):
        exact, found = model._held_out(h, fold), model._held_out_rounded(h, fold)
        assert torch.equal(exact.isnan(), found.isnan())  # who has no neighbor
        # A tenth of the noise, for four of five: a line through two far neighbors turns by more if they move.
        assert (exact - found)[:, 0].abs().nanquantile(0.8) < 0.03


@BOTH
@pytest.mark.parametrize("features", [1, 2])
def test_a_large_table_takes_a_bounded_search(regression, features, monkeypatch):
    X, y = table(1500, features)
    pairs, blocks = [], regression._blocks
    monkeypatch.setattr(
        regression,
        "_blocks",
        lambda self, q, k, of: pairs.append(q.shape[2] * k.shape[2]) or blocks(self, q, k, of),
    )
    if features == 1:
        found = regression().fit(X, y).bandwidth_
    else:
        with pytest.warns(
            UserWarning, match=rf"{regression.__name__}: the bandwidth is chosen on 1000 of the 1500"
        ):
            found = regression().fit(X, y).bandwidth_
    assert max(pairs, default=0) <= 1000**2
    monkeypatch.setattr(base, "EXACT", 1500)
    # in two dimensions other samples are drawn, and their choice scatters
    same(found, regression().fit(X, y).bandwidth_, 0.01 if features == 1 else 0.5)
