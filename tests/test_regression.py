"""The two regressions against their formulas, against refitting, against statsmodels and scikit-learn."""

import math
import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from gkalib import LocalLinear, NadarayaWatson, data, kernels
from gkalib.kernels import Boxcar, Epanechnikov, ExpDot, Gaussian, Laplace, Tricube
from gkalib.regression import base

ROUNDING = 1e-11  # relative to the largest value: float64 sums over some hundred samples
BOTH = pytest.mark.parametrize("regression", [NadarayaWatson, LocalLinear])


def same(found, expected, rounding=ROUNDING):
    np.testing.assert_allclose(found, expected, rtol=rounding, atol=rounding * np.abs(expected).max())


def table(count=60, features=2, outputs=1, seed=0):
    """A curved surface with noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, features)) * np.arange(1, features + 1)
    y = np.sin(X.sum(1))[:, None] * np.arange(1, outputs + 1) + 0.1 * rng.normal(size=(count, outputs))
    return X, y[:, 0] if outputs == 1 else y


@parametrize_with_checks([NadarayaWatson(), LocalLinear()])
def test_scikit_learn_takes_it_for_an_estimator(estimator, check):
    check(estimator)


@pytest.mark.parametrize("count", [60, 700])  # below and above the size at which `auto` changes its method
def test_matches_the_formula(count):
    X, y = table(count)
    h, queries = 0.7, X[:9] + 0.3
    distances = np.linalg.norm(queries[:, None] - X, axis=-1)
    kappa = np.exp(-(distances**2) / (2 * h**2))
    same(NadarayaWatson(bandwidth=h).fit(X, y).predict(queries), kappa @ y / kappa.sum(1))


def test_local_linear_matches_the_formula():
    """The height of the line of weighted least squares, solved query by query."""
    X, y = table()
    h, queries = 0.9, X[:9] + 0.1
    expected = []
    for query in queries:
        root = np.exp(-((X - query) ** 2).sum(1) / (4 * h**2))
        design = np.column_stack([np.ones(len(X)), X - query])
        expected.append(np.linalg.lstsq(root[:, None] * design, root * y, rcond=None)[0][0])
    same(LocalLinear(bandwidth=h).fit(X, y).predict(queries), np.array(expected), 1e-9)


@pytest.mark.parametrize("h", [0.5, 1.2, 3.0, 20.0])
@pytest.mark.parametrize(("regression", "name"), [(NadarayaWatson, "lc"), (LocalLinear, "ll")])
def test_agrees_with_statsmodels_on_mcycle(regression, name, h):
    nonparametric = pytest.importorskip(
        "statsmodels.nonparametric.api", reason="statsmodels is not installed"
    )
    X, y, *_ = data.mcycle()
    with warnings.catch_warnings():
        # statsmodels announces a change of a random generator that a given bandwidth never uses
        warnings.simplefilter("ignore", FutureWarning)
        oracle = nonparametric.KernelReg(y, X, var_type="c", reg_type=name, bw=[h])
        expected = oracle.fit(X)[0]
    same(regression(bandwidth=h).fit(X, y).predict(X), expected)


@BOTH
@pytest.mark.parametrize("kernel", [Gaussian, Epanechnikov, Laplace])
def test_closed_form_loo_equals_refitting(regression, kernel):
    X, y = table(40, 2)
    model = regression(kernel, bandwidth=3.0).fit(X, y)
    expected = []
    for i in range(len(X)):
        others = np.arange(len(X)) != i
        expected.append(regression(kernel, bandwidth=3.0).fit(X[others], y[others]).predict(X[i : i + 1])[0])
    same(model.leave_one_out(), np.array(expected), 1e-9)
    assert model.loo_score_ == pytest.approx(np.mean((y - np.array(expected)) ** 2))


@BOTH
def test_loo_is_the_shortcut_through_the_diagonal(regression):
    X, y, *_ = data.mcycle()
    model = regression(bandwidth=2.0).fit(X, y)
    diagonal = model.weights(X).diagonal()
    residual = (y - model.predict(X)) / (1 - diagonal)
    same(model.leave_one_out(), y - residual, 1e-9)
    assert model.degrees_of_freedom_ == pytest.approx(diagonal.sum())


def test_limits_of_the_bandwidth():
    X, y = table(40, 2)
    same(NadarayaWatson(bandwidth=1e-4).fit(X, y).predict(X), y)
    same(NadarayaWatson(bandwidth=1e7).fit(X, y).predict(X), np.full(40, y.mean()))
    nearest = NadarayaWatson(bandwidth=1e-4).fit(X, y).predict(X + 0.01)
    same(nearest, y[[np.linalg.norm(X - query, axis=1).argmin() for query in X + 0.01]])
    same(LocalLinear(bandwidth=1e-4).fit(X, y).predict(X), y)
    line = LinearRegression().fit(X, y).predict(X)
    # the kernel is not flat yet: what remains is of the order of the square of range over bandwidth
    same(LocalLinear(bandwidth=1e5).fit(X, y).predict(X), line, 1e-7)


@BOTH
@pytest.mark.parametrize(
    "kernel", [Gaussian, Laplace, Tricube, lambda sigma: Gaussian(sigma) * Boxcar(4 * sigma)]
)
def test_constants_are_reproduced(regression, kernel):
    X, _ = table()
    same(regression(kernel, bandwidth=4.0).fit(X, np.full(len(X), 7.5)).predict(X), np.full(len(X), 7.5))


@pytest.mark.parametrize("kernel", [Gaussian, Laplace, Epanechnikov])
def test_local_linear_reproduces_lines(kernel):
    X, _ = table(80, 2)
    line = X @ [2.0, -3.0] + 5.0
    model = LocalLinear(kernel, bandwidth=6.0).fit(X, line)
    same(model.predict(X), line)
    same(model.weights(X) @ X, X)


def test_where_one_sample_has_all_the_weight_the_line_is_flat():
    model = LocalLinear(bandwidth=0.1).fit([[0.0], [1.0], [2.0]], [0.0, 5.0, 6.0])
    same(model.predict([[-50.0], [50.0]]), np.array([0.0, 6.0]))


@BOTH
def test_sample_weights_are_repetitions(regression):
    X, y = table(40, 2)
    times = np.random.default_rng(1).integers(0, 4, size=40)
    weighted = regression().fit(X, y, sample_weight=times)
    repeated = regression().fit(np.repeat(X, times, 0), np.repeat(y, times))
    same(weighted.bandwidth_, repeated.bandwidth_, 1e-9)
    same(weighted.predict(X), repeated.predict(X), 1e-8)
    assert weighted.loo_score_ == pytest.approx(repeated.loo_score_)


@BOTH
@pytest.mark.parametrize("kernel", [Gaussian, Epanechnikov])
def test_the_standard_error_is_that_of_a_bootstrap(regression, kernel):
    """New responses at the same places, of known noise; and readings drawn again with replacement."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0, 6, 200))[:, None]
    truth, grid = np.sin(X[:, 0]), np.linspace(1, 5, 9)[:, None]
    model = regression(kernel, bandwidth=0.3 if kernel is Gaussian else 0.7)
    y = truth + 0.3 * rng.normal(size=(400, 200))
    fits = [model.fit(X, each).predict(grid, return_std=True) for each in y]
    means, errors = (np.array(each) for each in zip(*fits, strict=True))
    np.testing.assert_allclose(errors.mean(0), means.std(0), rtol=0.15)  # 400 draws tell a deviation to 3.5%
    covered = np.abs(means - model.weights(grid) @ truth) < 1.96 * errors
    assert 0.93 < covered.mean() < 0.97
    draws = [rng.integers(200, size=200) for _ in range(400)]
    again = np.std([model.fit(X[each], y[0][each]).predict(grid) for each in draws], axis=0)
    assert np.mean(again / errors[0]) == pytest.approx(1, rel=0.15)


@BOTH
def test_outputs_and_their_standard_errors_are_columns(regression):
    X, y = table(50, 2, outputs=3)
    model = regression(bandwidth=0.8).fit(X, y)
    together = model.predict(X, return_std=True)
    assert model.leave_one_out().shape == (50, 3)
    columns = [regression(bandwidth=0.8).fit(X, each).predict(X, return_std=True) for each in y.T]
    for each in (0, 1):
        same(together[each], np.column_stack([column[each] for column in columns]))
    model = regression(bandwidth=1e-4).fit(X, y)
    with pytest.raises(ValueError, match="the fit passes through every sample and leaves no residual"):
        model.predict(X, return_std=True)


@pytest.mark.parametrize("name", ["gaussian", "Epanechnikov", "rational_quadratic"])
def test_a_kernel_has_a_name(name):
    X, y = table()
    model = clone(NadarayaWatson(name, bandwidth=1.5))
    assert model.get_params()["kernel"] == name
    named = {
        "gaussian": Gaussian,
        "Epanechnikov": Epanechnikov,
        "rational_quadratic": kernels.RationalQuadratic,
    }
    expected = NadarayaWatson(named[name], bandwidth=1.5).fit(X, y)
    same(model.fit(X, y).predict(X), expected.predict(X))


@BOTH
def test_one_bandwidth_per_feature_scales_the_features(regression):
    X, y = table(50, 2)
    h = np.array([0.5, 2.0])
    anisotropic = regression(bandwidth=h).fit(X, y)
    scaled = regression(bandwidth=1.0).fit(X / h, y)
    same(anisotropic.predict(X), scaled.predict(X / h), 1e-10)
    same(
        regression(bandwidth=[0.7, 0.7]).fit(X, y).predict(X),
        regression(bandwidth=0.7).fit(X, y).predict(X),
        1e-10,
    )


@BOTH
def test_weights_are_the_smoother_matrix(regression):
    X, y = table(50, 2)
    model = regression(bandwidth=1.0).fit(X, y, sample_weight=np.arange(50) % 3)
    W = model.weights(X)
    assert W.shape == (50, len(model.y_))
    same(W @ model.y_, model.predict(X), 1e-10)
    same(W.sum(1), np.ones(50))
    same(model.effective_neighbors(X), 1 / (W**2).sum(1))


@BOTH
def test_blocks_change_nothing(regression, monkeypatch):
    X, y = table(50, 2)
    whole = regression(bandwidth=1.0).fit(X, y)
    expected = whole.weights(X), whole.leave_one_out(), whole.degrees_of_freedom_
    monkeypatch.setattr(base, "BLOCK", 8 * 50 * 7)
    same(whole.weights(X), expected[0])
    same(whole.leave_one_out(), expected[1])
    assert whole.degrees_of_freedom_ == pytest.approx(expected[2])


def test_any_kernel_with_a_number_in_it_will_do():
    X, y = table(50, 2)
    kappa = np.exp(0.3 * X @ X.T)
    same(NadarayaWatson(ExpDot, bandwidth=0.3).fit(X, y).predict(X), kappa @ y / kappa.sum(1), 1e-10)


@pytest.mark.parametrize("origin", [0.0, 1e6])
def test_far_from_zero_no_digits_are_lost(origin):
    X, y = table(50, 1)
    X = np.round(X, 2)
    same(
        NadarayaWatson(bandwidth=0.3).fit(X + origin, y).predict(X + origin),
        NadarayaWatson(bandwidth=0.3).fit(X, y).predict(X),
        1e-7,
    )


@BOTH
def test_queries_without_a_neighbor_are_named(regression):
    model = regression(Epanechnikov, bandwidth=1.0).fit([[0.0], [0.5], [1.0]], [1.0, 2.0, 3.0])
    with pytest.raises(
        ValueError,
        match=rf"{regression.__name__}: no sample lies within reach of 2 of the queries, rows 1, 3",
    ):
        model.predict([[0.2], [9.0], [0.7], [-4.0]])
    with pytest.raises(
        ValueError, match=r"rows 1: a larger bandwidth or a kernel without bounds, such as Gaussian"
    ):
        model.weights([[0.2], [9.0]])


def test_left_out_without_a_neighbor_is_nan_and_infinite():
    model = NadarayaWatson(Boxcar, bandwidth=1.0).fit([[0.0], [0.5], [9.0]], [1.0, 2.0, 3.0])
    same(model.leave_one_out()[:2], np.array([2.0, 1.0]))
    assert np.isnan(model.leave_one_out()[2])
    assert model.loo_score_ == math.inf
    chosen = NadarayaWatson(Boxcar).fit([[0.0], [0.5], [9.0]], [1.0, 2.0, 3.0])
    assert chosen.bandwidth_ > 8.5
    assert np.isfinite(chosen.loo_score_)


X3, Y3 = np.arange(3.0)[:, None], np.arange(3.0)
BAD_DATA = {
    "empty": (np.empty((0, 1)), np.empty(0), r"0 sample\(s\).*minimum of 1 is required by NadarayaWatson"),
    "nan": ([[math.nan], [1.0]], [1.0, 2.0], "Input X contains NaN.\nNadarayaWatson does not accept"),
    "nan y": ([[0.0], [1.0]], [1.0, math.nan], "Input y contains NaN"),
    "one": ([[0.0]], [1.0], "NadarayaWatson: bandwidth='loo' needs more than 1 sample"),
}


@pytest.mark.parametrize(("X", "y", "message"), BAD_DATA.values(), ids=BAD_DATA)
def test_bad_data_is_answered(X, y, message):
    with pytest.raises(ValueError, match=message):
        NadarayaWatson().fit(X, y)


BAD_BANDWIDTHS = {
    0.0: "bandwidth must be positive and finite, not 0.0",
    math.inf: "bandwidth must be positive and finite, not inf",
    (1.0, 2.0): r"bandwidth must be a number, one number for each of the 1 features, or .*, not \(1.0, 2.0\)",
    "lo": "bandwidth must be a number, .* or one of scott, silverman, loo, kfold, not 'lo'",
    "kfold": "folds must be a whole number above 1, not 1",
}


@pytest.mark.parametrize(("bandwidth", "message"), BAD_BANDWIDTHS.items())
def test_bad_bandwidths_are_answered(bandwidth, message):
    with pytest.raises(ValueError, match=f"^LocalLinear: {message}"):
        LocalLinear(bandwidth=bandwidth, folds=1).fit(X3, Y3)


BAD_KERNELS = {
    "instance": (Gaussian(1.0), "kernel must be a name, a class such as Gaussian, or a function .*, not Gau"),
    "near": ("gauss", r"no kernel 'gauss'; did you mean 'gaussian'\? Known: box"),
    "unknown": ("rbf", "no kernel 'rbf'; Known: boxcar, epanechnikov"),
    "no kernel": (abs, r"kernel\(1.0\) gives 1.0, which is no kernel"),
    "lag": (lambda h: kernels.ALiBi(1), "ALiBi is a kernel of the lag between positions, and samples have"),
    "signed": (lambda h: kernels.Dot(), "Dot may be negative, and its weights would be no average"),
    "heads": (lambda h: Gaussian(torch.ones(2)), "Gaussian has parameters for 2 heads, regression has one"),
    "its own": (lambda h: Gaussian(-h), "sigma must be positive and finite, not -1.0"),
}


@pytest.mark.parametrize(("kernel", "message"), BAD_KERNELS.values(), ids=BAD_KERNELS)
def test_bad_kernels_are_answered(kernel, message):
    with pytest.raises(ValueError, match=f"^(NadarayaWatson|Gaussian): {message}"):
        NadarayaWatson(kernel).fit(X3, Y3)


def test_bad_weights_are_answered():
    with pytest.raises(ValueError, match="NadarayaWatson: every sample has weight zero"):
        NadarayaWatson().fit(X3, Y3, sample_weight=[0, 0, 0])
    with pytest.raises(ValueError, match="Negative values in data passed to `sample_weight`"):
        NadarayaWatson().fit(X3, Y3, sample_weight=[1, -1, 1])
