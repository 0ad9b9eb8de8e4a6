"""The fast Gauss transform: its error stays below its bound, and the bound below what was asked."""

import math
import re

import pytest
import torch

import gkalib
from gkalib import kernels, masks
from gkalib.normalizers import RowSum, TopK, Unnormalized
from gkalib.smoothing import FastGauss, gauss_bound, make_problem
from gkalib.smoothing.methods.fast_gauss import _graded
from tests.tolerance import equal

HEADS = 2
SIGMAS = torch.tensor([0.4, 0.9], dtype=torch.float64)


def _tensors(dim: int, n: int = 40, m: int = 50):
    query, key = (torch.rand(2, HEADS, count, dim, dtype=torch.float64) for count in (n, m))
    return query, key, torch.randn(2, HEADS, m, 3, dtype=torch.float64)


def _share(found, exact, votes) -> float:
    """The largest error of a sum relative to Σ|q|."""
    return ((found - exact).abs() / votes.abs().sum(2, keepdim=True)).max().item()


@pytest.mark.parametrize("eps", [1e-1, 1e-3, 1e-6])
@pytest.mark.parametrize("dim", [1, 2, 3, 5])
def test_the_error_is_below_what_was_asked(dim, eps):
    query, key, value = _tensors(dim)
    slots = {"kernel": kernels.Gaussian(SIGMAS), "normalizer": Unnormalized()}
    found = gkalib.smooth(query, key, value, method=FastGauss(eps), **slots)
    assert _share(found, gkalib.smooth(query, key, value, method="reference", **slots), value) < eps


@pytest.mark.parametrize("order", [1, 2, 4, 7])
@pytest.mark.parametrize("clusters", [1, 5])
@pytest.mark.parametrize("dim", [1, 3])
def test_the_error_is_below_the_bound_of_its_plan(dim, clusters, order):
    query, key, value = _tensors(dim)
    slots = {"kernel": kernels.Gaussian(0.7), "normalizer": Unnormalized()}
    method = FastGauss(1e-12, order=order, clusters=clusters)
    exact = gkalib.smooth(query, key, value, method="reference", **slots)
    share = _share(gkalib.smooth(query, key, value, method=method, **slots), exact, value)
    plans = [method.plan(query[b, h], key[b, h], sigma=0.7) for b in range(2) for h in range(HEADS)]
    assert all(plan.order == order and plan.clusters == clusters for plan in plans)
    assert 0 < share < max(plan.bound for plan in plans)


@pytest.mark.parametrize("order", [1, 2, 5, 9])
def test_the_error_is_the_remainder_of_the_exponential_series(order):
    """One source at the cluster's edge: a target at y on its side misses e^{−(y−a)²/2} P(p, ay)."""
    radius, sigma = 0.8, 0.6
    key = torch.tensor([0.0, radius], dtype=torch.float64).reshape(1, 1, 2, 1)
    value = torch.tensor([0.0, 1.0], dtype=torch.float64).reshape(1, 1, 2, 1)
    query = torch.linspace(0.01, 5, 400, dtype=torch.float64).reshape(1, 1, -1, 1)
    slots = {"kernel": kernels.Gaussian(sigma), "normalizer": Unnormalized()}
    found = gkalib.smooth(query, key, value, method=FastGauss(1e-15, order=order, clusters=1), **slots)
    error = gkalib.smooth(query, key, value, method="reference", **slots) - found
    a, y = torch.tensor(radius / sigma, dtype=torch.float64), query / sigma
    share = torch.special.gammainc(
        torch.full_like(y, order), a * y
    )  # P(p, z), of e^z what a cut series misses
    exact = (-((y - a) ** 2) / 2).exp() * share
    assert (error - exact).abs().max() < 1e-12
    assert error.max() < gauss_bound(radius, order, sigma=sigma)
    mirrored = gkalib.smooth(-query, key, value, method=FastGauss(1e-15, order=order, clusters=1), **slots)
    mirrored = mirrored - gkalib.smooth(-query, key, value, method="reference", **slots)
    assert (mirrored.abs() <= exact + 1e-12).all()


def test_the_bound_by_hand_and_its_trends():
    a, order = 0.5, 3
    b = (a + math.sqrt(a**2 + 4 * order)) / 2
    by_hand = (a * b) ** order / math.factorial(order) * math.exp(-((b - a) ** 2) / 2)
    assert math.isclose(gauss_bound(a, order), by_hand)
    assert math.isclose(gauss_bound(2 * a, order, sigma=2.0), by_hand)
    assert gauss_bound(a, order, reach=0.1) < by_hand and gauss_bound(a, order, reach=99.0) == gauss_bound(
        a, order
    )
    falling = [gauss_bound(a, order) for order in range(1, 12)]
    assert falling == sorted(falling, reverse=True)
    assert gauss_bound(0.0, 1) == 0.0
    h = math.sqrt(2) * 0.7  # the papers' form
    b = (a + math.sqrt(a**2 + 2 * order * h**2)) / 2
    papers = (2 * a * b / h**2) ** order / math.factorial(order) * math.exp(-((b - a) ** 2) / h**2)
    assert math.isclose(gauss_bound(a, order, sigma=0.7), papers)


def test_terms_are_all_monomials_below_the_order():
    unit = torch.eye(3)
    exponents = _graded(torch.zeros(1, 3), lambda i, terms: terms + unit[i], 3, 5)
    assert exponents.shape[0] == math.comb(4 + 3, 3)
    assert len({tuple(row) for row in exponents.tolist()}) == exponents.shape[0]
    assert exponents.sum(1).max() == 4


def test_softmax_attention_is_a_gauss_transform_with_votes():
    query, key, value = _tensors(2)
    query, key = 3 * query, 3 * key
    found = gkalib.smooth(query, key, value, kernels.ExpDot(), method=FastGauss(1e-9))
    exact = gkalib.smooth(query, key, value, kernels.ExpDot(), method="reference")
    assert (found - exact).abs().max() < 1e-6


@pytest.mark.parametrize("normalizer", [RowSum(), RowSum(eps=0.3), Unnormalized()])
@pytest.mark.parametrize("kernel", [kernels.Gaussian(SIGMAS), kernels.ExpDot(SIGMAS)])
def test_every_key_a_cluster_is_the_exact_sum(kernel, normalizer):
    query, key, value = _tensors(3)
    slots = {"normalizer": normalizer, "mask": masks.KeyPadding(torch.tensor([0, 30]))}
    method = FastGauss(1e-15, order=1, clusters=50)
    equal(
        gkalib.smooth(query, key, value, kernel, method=method, **slots),
        gkalib.smooth(query, key, value, kernel, method="reference", **slots),
    )


@pytest.mark.parametrize(
    "method",
    [
        FastGauss(1e-7),
        FastGauss(1e-7, memory=2**10),
        FastGauss(1e-7, clusters=4),
        FastGauss(1e-7, clusters=50),
    ],
    ids=["planned", "in-blocks", "few-clusters", "each-key-its-own"],
)
def test_gradients_are_near_the_exact_ones(method):
    sigma = torch.tensor([0.5, 0.9], dtype=torch.float64)
    leaves = [tensor.requires_grad_() for tensor in (*_tensors(2), sigma)]
    slope = torch.randn(2, HEADS, 40, 3, dtype=torch.float64)
    fast, exact = (
        torch.autograd.grad(
            (gkalib.smooth(*leaves[:3], kernels.Gaussian(sigma), method=method) * slope).sum(), leaves
        )
        for method in (method, "reference")
    )
    for one, other in zip(fast, exact, strict=True):
        assert (one - other).abs().max() < 1e-3 * other.abs().max()


def test_a_query_out_of_reach_is_zero():
    query, key, value = _tensors(2)
    query = query + 30
    assert not gkalib.smooth(query, key, value, kernels.Gaussian(1.0), method=FastGauss(1e-3)).any()


def test_the_plan_weighs_its_costs():
    """In one dimension expansions are cheaper than the sum, in sixteen each key is a cluster of its own."""
    points = torch.rand(400, 16, dtype=torch.float64)
    low = FastGauss(1e-3).plan(points[:, :1], points[:, :1], sigma=0.3)
    assert low.operations < low.direct / 5 and low.bound <= 1e-3 and low.terms == low.order
    high = FastGauss(1e-3).plan(points, points, sigma=0.3)
    assert high.operations > high.direct and high.clusters == 400 and high.bound == 0


@pytest.mark.parametrize(
    ("kernel", "slots", "reason"),
    [
        (kernels.Laplace(1.0), {}, "Laplace has no form scale"),
        (kernels.DecayingPeriodicBank(HEADS), {}, "a kernel of the lag is no Gaussian of query and key"),
        (kernels.Gaussian(1.0), {"normalizer": TopK(2)}, "TopK(2) needs the weights one by one"),
        (
            kernels.Gaussian(1.0),
            {"mask": masks.Causal()},
            "Causal() does not leave one sum for all queries; KeyPadding does",
        ),
    ],
)
def test_refusals_give_their_reason(kernel, slots, reason):
    inputs = _tensors(2)
    with pytest.raises(ValueError, match=re.escape(f"fast-gauss cannot compute this: {reason}")):
        gkalib.smooth(*inputs, kernel, method=FastGauss(), **slots)
    assert reason in FastGauss().refuses(make_problem(*inputs, kernel, **slots))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: FastGauss(0.0), "FastGauss: eps must lie between 0 and 1, not 0.0"),
        (lambda: FastGauss(1.5), "FastGauss: eps must lie between 0 and 1, not 1.5"),
        (lambda: FastGauss(order=0), "FastGauss: order must be at least 1, not 0"),
        (lambda: FastGauss(clusters=0), "FastGauss: clusters must be at least 1, not 0"),
        (lambda: FastGauss(memory=0), "FastGauss: memory must be at least 1, not 0"),
        (
            lambda: gauss_bound(-1.0, 3),
            "radius not negative, sigma and reach positive, not order 3, radius -1.0",
        ),
        (lambda: _smooth(FastGauss(clusters=51)), "FastGauss: clusters 51 is above the 50 keys"),
        (
            lambda: _smooth(FastGauss(1e-9, clusters=1), sigma=0.01),
            "FastGauss: 1 clusters need an order above 199 for eps 1e-09",
        ),
        (
            lambda: _smooth(FastGauss(order=30, clusters=2, memory=2**20), dim=8),
            "an expansion of order 30 in 8 dimensions has 38608020 terms, more than fit into 1048576 bytes",
        ),
    ],
)
def test_message(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


def _smooth(method, *, dim: int = 2, sigma: float = 1.0):
    return gkalib.smooth(*_tensors(dim), kernels.Gaussian(sigma), method=method)
