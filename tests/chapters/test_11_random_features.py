"""The labeled equations of chapter 11 that no test of the library holds."""

import math

import torch

import gkalib
from gkalib.kernels import Elu, PositiveRandom, RandomFourier
from tests.tolerance import equal

D = 6
DRAWS = 100_000


def _normal(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def _query_and_key(scale: float = 0.25):
    """Two vectors of R^6 with q·k > 0 and s = 1."""
    return scale * torch.tensor([1.0, 1, 0, -1, 0.5, 0]).double(), scale * torch.tensor(
        [1.0, 0, 1, -0.5, 0.5, 1]
    ).double()


def _ratios(query, key, rows):
    """Estimates of exp(q·k) over its value from ``rows`` independent rows: exponentials, waves, pairs."""
    omega = _normal(DRAWS, rows, D)
    plus, minus = (query + key).square().sum(), (query - key).square().sum()
    exponents, phases = omega @ (query + key), omega @ (query - key)
    return (
        (exponents - plus / 2).exp().mean(-1),
        (minus / 2).exp() * phases.cos().mean(-1),
        (-plus / 2).exp() * exponents.cosh().mean(-1),
    )


def test_the_ratios_are_the_librarys():
    """What the statistics below simulate is what the kernels compute, for one ω."""
    query, key = _query_and_key()
    at = [vector[None, None, None] for vector in (query, key)]
    kernels = PositiveRandom(D, 3, scale=1.0), RandomFourier(D, 3, sigma=1.0)
    positive, wave = (kernel(*at).squeeze() for kernel in kernels)
    omega = kernels[0].omega
    equal(kernels[1].omega, omega)
    truth, plus, minus = (query @ key).exp(), query + key, query - key
    equal(positive, truth * (omega @ plus - plus.square().sum() / 2).exp().mean())
    equal(wave, (omega @ minus).cos().mean())


def test_weights_factor_through_slots():
    query, key = _normal(2, 3, 7, D), _normal(2, 3, 9, D)
    for kernel in (Elu(), PositiveRandom(D, 4)):
        features = kernel.features()
        q, k = features.query(query), features.key(key)
        z = k.sum(-2)
        slots = k.mT / z[..., None]
        mixing = q * z[..., None, :]
        mixing = mixing / mixing.sum(-1, keepdim=True)
        weights = gkalib.attention_weights(query, key, kernel)
        equal(mixing @ slots, weights)
        equal(slots.sum(-1), torch.ones_like(z))
        assert torch.linalg.matrix_rank(weights).max() <= q.shape[-1]


def test_both_relative_variances():
    """Over 100,000 draws, to five parts in a hundred."""
    query, key = _query_and_key()
    z, delta = (query + key).square().sum(), (query - key).square().sum()
    for features in (2, 8):
        positive = _ratios(query, key, features)[0].var()
        waves = _ratios(query, key, features // 2)[1].var()
        assert abs(positive / ((z.exp() - 1) / features) - 1) < 0.05
        assert abs(waves / (delta.exp() * (1 - (-delta).exp()) ** 2 / features) - 1) < 0.05


def test_both_absolute_errors():
    """The variances times κ² without their small terms are A²κ⁴/r and A²/r."""
    query, key = _normal(200, D), _normal(200, D)
    log_kappa = (query * key).sum(-1)
    z, delta = ((query + sign * key).square().sum(-1) for sign in (1, -1))
    log_a = (query.square() + key.square()).sum(-1) / 2
    equal(z + 2 * log_kappa, 2 * (log_a + 2 * log_kappa))
    equal(delta + 2 * log_kappa, 2 * log_a)


def test_the_features_that_an_error_demands():
    """With e^z/ε² features the relative error is ε, up to the 1 that e^z − 1 leaves out; 100,000 draws."""
    query, key = _query_and_key(0.5)
    growth = (query + key).square().sum().exp()
    for error in (1.0, 0.5):
        features = round(float(growth / error**2))
        measured = _ratios(query, key, features)[0].std()
        assert abs(measured / (error * (1 - 1 / growth).sqrt()) - 1) < 0.1


def test_the_bias_of_a_ratio_falls_like_one_over_r():
    """With 64 features the mean weight is off as the second order says, to a fifth, over 100,000 draws."""
    query = torch.tensor([0.5, 0.2, 0.0, 0, 0, 0]).double()
    keys = torch.tensor([[0.6, 0.2, 0, 0, 0, 0], [0, 0.5, 0.3, 0, 0, 0], [-0.4, 0, 0, 0.5, 0, 0]]).double()
    kappa, total = (keys @ query).exp(), (keys @ query).exp().sum()
    omega = _normal(DRAWS, 64, D)
    norms = (query @ query + keys.square().sum(-1)) / 2
    samples = (omega @ (query + keys).T - norms).exp()
    one, both = samples[..., 0].flatten(), samples.sum(-1).flatten()
    covariance = torch.cov(torch.stack([one, both]))
    second_order = (kappa[0] * covariance[1, 1] / total**3 - covariance[0, 1] / total**2) / 64
    hat = samples.mean(1)
    weight = hat[:, 0] / hat.sum(-1)
    bias = weight.mean() - kappa[0] / total
    assert abs(bias) > 5 * weight.std() / math.sqrt(DRAWS)
    assert abs(bias / second_order - 1) < 0.2


def test_pairs_mirror_the_fourier_error():
    query, key = _query_and_key()
    z = (query + key).square().sum()
    pairs = _ratios(query, key, 4)[2]
    assert abs(pairs.mean() - 1) < 4 * pairs.std() / math.sqrt(DRAWS)
    assert abs(pairs.var() / (z.exp() * (1 - (-z).exp()) ** 2 / 8) - 1) < 0.05
