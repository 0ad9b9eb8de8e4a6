"""The labeled equations of chapter 28 that no test of the library covers."""

import math

import pytest
import torch

import gkalib
from gkalib.kernels import Gaussian
from gkalib.layers.parts import Rope, SuSiE, frequencies
from gkalib.normalizers import Unnormalized


def _normal(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def _gaussian(gamma):
    return Gaussian((2 * gamma) ** -0.5)


def test_susie_adds_a_cross_term_of_a_known_size():
    place = SuSiE(1, 64).double()
    place.omega = frequencies(64, 10000.0)
    query, key = _normal(2, 4000, 64)
    table = place.table(torch.tensor([37, 5]))[0]
    apart = table[0] - table[1]
    gamma = 1 / 8
    with_places = -gamma * (query + table[0] - key - table[1]).square().sum(-1)
    cross = -2 * gamma * (query - key) @ apart
    by_formula = -gamma * (query - key).square().sum(-1) - gamma * apart.square().sum() + cross
    torch.testing.assert_close(with_places, by_formula, rtol=1e-12, atol=0)
    size = 2 * math.sqrt(2) * gamma * apart.norm().item()
    assert cross.std().item() == pytest.approx(size, rel=0.03)


def test_rotary_distances_depend_on_the_lag_alone():
    place = Rope(1, 8).double()
    place.omega = frequencies(8, 10000.0)
    query, key = (_normal(1, 1, 1, 8).expand(1, 1, 30, 8) for _ in range(2))
    scores = _gaussian(0.4).log(place(query, torch.arange(30)), place(key, torch.arange(30)))[0, 0]
    for lag in range(-20, 21):
        diagonal = scores.diagonal(-lag)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=0, atol=1e-12)
    assert scores[0].std() > 0.05


@pytest.mark.parametrize(("width", "spread"), [(16, 1.0), (64, 1 / math.sqrt(3))])
def test_the_mass_of_a_normal_key_falls_exponentially(width, spread):
    query, key = spread * _normal(1, 1, 2000, width), spread * _normal(1, 1, 2000, width)
    gamma = 1 / math.sqrt(width)
    found = gkalib.attention_weights(query, key, _gaussian(gamma), normalizer=Unnormalized()).mean().item()
    assert found == pytest.approx((1 + 4 * gamma * spread**2) ** (-width / 2), rel=0.05)
