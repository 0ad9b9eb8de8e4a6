"""The labeled equations of chapter 2, each computed another way and compared with the library."""

import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import gkalib
from gkalib.kernels import Gaussian

NOISE = 0.2
ROUGHNESS = 1 / (2 * math.sqrt(math.pi))  # the integral of the squared Gaussian density
AT = np.linspace(0.2, 0.8, 13)


def m(x):
    return np.sin(2 * np.pi * x)


def slope(x):
    return 2 * np.pi * np.cos(2 * np.pi * x)


def curvature(x):
    return -4 * np.pi**2 * m(x)


def density(x):
    return 0.25 + 1.5 * x


def quantile(p):
    return (np.sqrt(1 + 48 * p) - 1) / 6


def design(n):
    return quantile((np.arange(n) + 0.5) / n)


def fitted(regression, x, y, h):
    return regression(bandwidth=h).fit(x[:, None], y)


def weights(x, h, *, at=AT, regression=gkalib.NadarayaWatson):
    return fitted(regression, x, m(x), h).weights(at[:, None])


def heads(*shape, seed=0):
    return torch.randn(1, 1, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_the_error_is_squared_bias_plus_variance():
    rng, x, h = np.random.default_rng(0), design(100), 0.05
    y = m(x)[:, None] + NOISE * rng.standard_normal((100, 20_000))
    estimates = fitted(gkalib.NadarayaWatson, x, y, h).predict(AT[:, None])
    w = weights(x, h)
    error = np.mean((estimates - m(AT)[:, None]) ** 2, axis=1)
    assert_allclose(error, (w @ m(x) - m(AT)) ** 2 + NOISE**2 * (w**2).sum(1), rtol=0.05)


@pytest.mark.parametrize("h", [0.01, 0.02])
def test_the_bias_is_curvature_and_design(h):
    x = design(5000)
    formula = h**2 * (curvature(AT) / 2 + slope(AT) * 1.5 / density(AT))
    bias = weights(x, h) @ m(x) - m(AT)
    assert np.abs(bias - formula).max() < 0.02 * np.abs(formula).max()
    without_design = np.abs(bias - h**2 / 2 * curvature(AT)).max()
    assert without_design > 0.3 * np.abs(formula).max()  # so that the tolerance cannot hide it


def test_the_variance_counts_the_neighbors():
    n, h = 2000, 0.02
    formula = ROUGHNESS / (n * h * density(AT))
    assert_allclose((weights(design(n), h) ** 2).sum(1), formula, rtol=0.02)
    model = fitted(gkalib.NadarayaWatson, design(n), m(design(n)), h)
    assert_allclose(1 / model.effective_neighbors(AT[:, None]), formula, rtol=0.02)


def test_the_best_bandwidth_shrinks_with_the_fifth_root():
    tried, at, best = np.geomspace(0.008, 0.08, 81), np.array([0.4]), []
    for n in (400, 12_800):
        x, errors = design(n), []
        for h in tried:
            w = weights(x, h, at=at)
            errors.append(((w @ m(x) - m(at)) ** 2 + NOISE**2 * (w**2).sum(1))[0])
        best.append(tried[np.argmin(errors)])
    bias = curvature(at) / 2 + slope(at) * 1.5 / density(at)
    for n, h in zip((400, 12_800), best, strict=True):
        formula = (NOISE**2 * ROUGHNESS / (4 * n * density(at) * bias**2)) ** 0.2
        assert_allclose(h, formula[0], rtol=0.06)
    assert best[0] / best[1] == pytest.approx(32**0.2, rel=0.06)


@pytest.mark.parametrize("folds", [None, 4])
def test_leaving_out_is_a_mask(folds):
    rng, n, h = np.random.default_rng(0), 40, 0.05
    x = rng.random(n)
    y = m(x) + NOISE * rng.standard_normal(n)
    fold = np.arange(n) if folds is None else np.arange(n) % folds
    places, responses = (torch.as_tensor(each)[None, None, :, None] for each in (x, y))
    mask = torch.as_tensor(fold[:, None] != fold)
    masked = gkalib.smooth(places, places, responses, Gaussian(h), mask=mask)[0, 0, :, 0]
    refits = [
        fitted(gkalib.NadarayaWatson, x[fold != fold[i]], y[fold != fold[i]], h).predict([[x[i]]])[0]
        for i in range(n)
    ]
    assert_allclose(masked, refits)


@pytest.mark.parametrize("h", [0.01, 0.02])
def test_the_bias_at_the_boundary_is_of_first_order(h):
    x = (np.arange(5000) + 0.5) / 5000
    bias = fitted(gkalib.NadarayaWatson, x, np.exp(2 * x), h).predict([[0.0]])[0] - 1
    assert bias == pytest.approx(2 * h * math.sqrt(2 / math.pi), rel=0.05)


@pytest.mark.parametrize("h", [0.01, 0.02])
def test_the_line_forgets_the_design(h):
    x = design(5000)
    inside = weights(x, h, regression=gkalib.LocalLinear) @ m(x) - m(AT)
    formula = h**2 / 2 * curvature(AT)
    assert np.abs(inside - formula).max() < 0.02 * np.abs(formula).max()
    even = (np.arange(5000) + 0.5) / 5000
    at_end = fitted(gkalib.LocalLinear, even, np.exp(2 * even), h).predict([[0.0]])[0] - 1
    assert at_end == pytest.approx(-(h**2) / 2 * (4 - math.pi) / (math.pi - 2) * 4, rel=0.08)


def test_a_metric_is_a_linear_map_before_the_kernel():
    query, key, A = heads(5, 3), heads(7, 3, seed=1), heads(2, 3, seed=2)[0, 0]
    steps = (query[0, 0, :, None] - key[0, 0]) @ A.T
    assert_allclose(Gaussian(1.0)(query @ A.T, key @ A.T)[0, 0], (-steps.square().sum(-1) / 2).exp())
    diagonal = torch.tensor([2.0, 0.5, 1.0], dtype=torch.float64)
    model = gkalib.NadarayaWatson(bandwidth=(1 / diagonal).numpy()).fit(key[0, 0], key[0, 0, :, 0])
    smoothed = gkalib.smooth(query * diagonal, key * diagonal, key[..., :1], Gaussian(1.0))
    assert_allclose(model.predict(query[0, 0]), smoothed[0, 0, :, 0])
