"""The labeled equations of chapter 1, each computed another way and compared with the library."""

import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch.nn.functional import scaled_dot_product_attention

import gkalib
from gkalib.kernels import Boxcar, ExpDot, Gaussian, Kernel
from gkalib.masks import Causal
from gkalib.normalizers import RowSum

BANDWIDTH = 0.7


@pytest.fixture
def readings():
    """Thirty readings, some of them at the same place."""
    rng = np.random.default_rng(1)
    x = np.sort(rng.uniform(0, 10, 30).round(1))
    x[5] = x[4]
    return x, np.sin(x) + 0.3 * rng.standard_normal(30)


def column(values):
    return torch.as_tensor(values, dtype=torch.float64).reshape(1, 1, -1, 1)


def weights(at, x):
    """The weights by loops, as the formula is printed."""
    table = np.empty((len(at), len(x)))
    for i, query in enumerate(at):
        similar = [math.exp(-((query - key) ** 2) / (2 * BANDWIDTH**2)) for key in x]
        table[i] = [one / sum(similar) for one in similar]
    return table


def fitted(x, y):
    return gkalib.NadarayaWatson(Gaussian, bandwidth=BANDWIDTH).fit(x[:, None], y)


def test_the_boxcar_is_a_plain_average_of_what_is_near(readings):
    x, y = readings
    at = np.array([1.05, 4.05, 7.05])
    smoothed = gkalib.smooth(column(at), column(x), column(y), Boxcar(1.5))[0, 0, :, 0]
    assert_allclose(smoothed, [y[abs(x - query) < 1.5].mean() for query in at])


def test_the_gaussian_is_its_formula():
    query, key = torch.tensor([[[[1.0, 2.0]]]]), torch.tensor([[[[4.0, 6.0]]]])
    assert Gaussian(5.0)(query, key).item() == pytest.approx(math.exp(-25 / 50))


def test_the_weights_are_the_kernel_divided_by_its_row_sum(readings):
    x, _ = readings
    at = np.linspace(0, 10, 7)
    computed = gkalib.attention_weights(column(at), column(x), Gaussian(BANDWIDTH))
    assert_allclose(computed[0, 0], weights(at, x))


def test_the_estimator_is_the_weighted_average(readings):
    x, y = readings
    at = np.linspace(0, 10, 7)
    assert_allclose(fitted(x, y).predict(at[:, None]), weights(at, x) @ y)


@pytest.mark.parametrize("spread", [0.2, 1.0])
def test_it_is_the_mean_of_the_conditional_density(readings, spread):
    x, y = readings
    at, step = 3.3, 0.01
    levels = np.arange(-12, 12, step)
    near = np.exp(-((at - x) ** 2) / (2 * BANDWIDTH**2))
    joint = near @ np.exp(-((levels - y[:, None]) ** 2) / (2 * spread**2))
    assert_allclose(fitted(x, y).predict([[at]]), (joint * levels).sum() / joint.sum())


def test_it_is_the_constant_of_least_squares(readings):
    x, y = readings
    root = np.exp(-((3.3 - x) ** 2) / (4 * BANDWIDTH**2))
    constant = np.linalg.lstsq(root[:, None], root * y, rcond=None)[0]
    assert_allclose(fitted(x, y).predict([[3.3]]), constant)


def test_smoothing_the_identity_gives_the_matrix(readings):
    x, y = readings
    identity = torch.eye(len(x), dtype=torch.float64)[None, None]
    matrix = gkalib.smooth(column(x), column(x), identity, Gaussian(BANDWIDTH))[0, 0]
    similar = np.exp(-((x[:, None] - x) ** 2) / (2 * BANDWIDTH**2))
    assert_allclose(matrix, np.diag(1 / similar.sum(1)) @ similar)
    assert_allclose(matrix @ torch.as_tensor(y), fitted(x, y).predict(x[:, None]))
    assert 1 <= matrix.trace() <= len(np.unique(x)) < len(x)


def test_the_trace_is_the_sum_of_own_sensitivities(readings):
    x, y = readings
    value = column(y).requires_grad_()
    out = gkalib.smooth(column(x), column(x), value, Gaussian(BANDWIDTH))
    own = [
        torch.autograd.grad(out[0, 0, i, 0], value, retain_graph=True)[0][0, 0, i, 0] for i in range(len(x))
    ]
    assert_allclose(sum(own), fitted(x, y).degrees_of_freedom_)


def test_noise_shrinks_by_the_effective_neighbors(readings):
    x, y = readings
    model, at = fitted(x, y), np.array([[2.0], [5.0]])
    row = weights(at[:, 0], x)
    assert_allclose(model.effective_neighbors(at), row.sum(1) ** 2 / (row**2).sum(1))
    noise = np.random.default_rng(2).standard_normal((len(x), 40_000))
    estimates = gkalib.NadarayaWatson(bandwidth=BANDWIDTH).fit(x[:, None], noise).predict(at)
    assert_allclose(estimates.var(1), 1 / model.effective_neighbors(at), rtol=0.05)


class Past(Kernel):
    """One for keys that are not later than the query."""

    def log(self, query, key, lag=None):
        return torch.where(key.mT <= query, 0.0, -torch.inf)


def test_the_causal_mask_is_a_factor_of_the_kernel(readings):
    x, y = readings
    at = np.linspace(1, 9, 17)
    times = (torch.as_tensor(at), torch.as_tensor(x))
    kernel = Gaussian(BANDWIDTH)
    masked = gkalib.smooth(column(at), column(x), column(y), kernel, mask=Causal(), positions=times)
    assert_allclose(masked, gkalib.smooth(column(at), column(x), column(y), kernel * Past()))
    by_hand = [weights([query], x[x <= query])[0] @ y[x <= query] for query in at]
    assert_allclose(masked[0, 0, :, 0], by_hand)


def test_the_row_sum_of_scores_does_not_underflow():
    scores = torch.tensor([[[[-300.0, -301.0, -302.0]]]])
    assert scores.exp().sum() == 0
    expected = np.exp([0.0, -1.0, -2.0]) / np.exp([0.0, -1.0, -2.0]).sum()
    assert_allclose(RowSum()(scores)[0, 0, 0], expected, rtol=1e-6)


def test_softmax_attention_computes_the_estimator(readings):
    x, y = readings
    at = np.linspace(0, 10, 7)
    query = torch.cat([column(at), torch.ones(1, 1, 7, 1, dtype=torch.float64)], -1)
    key = torch.cat([column(x) / BANDWIDTH**2, -(column(x) ** 2) / (2 * BANDWIDTH**2)], -1)
    attended = scaled_dot_product_attention(query, key, column(y), scale=1.0)
    assert_allclose(attended[0, 0, :, 0], weights(at, x) @ y)
    assert_allclose(gkalib.smooth(query, key, column(y), ExpDot(1.0)), attended)
