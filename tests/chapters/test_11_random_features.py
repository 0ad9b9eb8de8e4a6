"""The labeled equations of chapter 11 that no test of the library holds."""

import torch

import gkalib
from gkalib.kernels import Elu, PositiveRandom, RandomFourier
from tests.tolerance import equal

D = 6


def _normal(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def test_an_estimate_over_its_kernel_is_a_mean_of_exponentials_or_of_waves():
    query, key = 0.25 * _normal(2, D)
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
