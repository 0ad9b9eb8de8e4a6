"""The labeled equations of chapter 7 that no test of the library holds already."""

import numpy as np
import pytest
import torch

import gkalib
from gkalib.kernels import Gaussian
from tests.tolerance import equal


def equally_correlated(n: int, d: int, rho: float) -> torch.Tensor:
    """n tokens of length √d, every pair with the product dρ: a common direction and one of its own each."""
    own = torch.eye(n, d - 1, dtype=torch.float64) * (1 - rho) ** 0.5
    return torch.cat([torch.full((n, 1), rho**0.5, dtype=torch.float64), own], dim=-1) * d**0.5


def test_distance_is_correlation():
    x = torch.nn.functional.normalize(torch.randn(9, 16, dtype=torch.float64), dim=-1) * 4
    equal(torch.cdist(x, x).square().fill_diagonal_(0), (2 * (16 - x @ x.T)).fill_diagonal_(0))


@pytest.mark.parametrize("rho", [0.0, 0.4])
@pytest.mark.parametrize("sigma", [1.5, 2.5, 6.0])
def test_neighbors_of_equally_correlated_tokens(rho, sigma):
    n, d = 20, 32
    x = equally_correlated(n, d, rho)[None, None]
    w = gkalib.attention_weights(x, x, Gaussian(sigma))[0, 0]
    t = np.exp(-d * (1 - rho) / sigma**2)
    equal(w.diagonal(), torch.full((n,), 1 / (1 + (n - 1) * t), dtype=torch.float64))
    formula = (1 + (n - 1) * t) ** 2 / (1 + (n - 1) * t**2)
    equal(1 / w.square().sum(-1), torch.full((n,), formula, dtype=torch.float64))


@pytest.mark.parametrize("rho", [0.0, 0.4])
def test_at_the_threshold_a_token_keeps_half(rho):
    n, d = 20, 32
    x = equally_correlated(n, d, rho)[None, None]
    w = gkalib.attention_weights(x, x, Gaussian((d * (1 - rho) / np.log(n - 1)) ** 0.5))[0, 0]
    equal(w.diagonal(), torch.full((n,), 0.5, dtype=torch.float64))
    equal(1 / w.square().sum(-1), torch.full((n,), 4 / (1 + 1 / (n - 1)), dtype=torch.float64))


@pytest.mark.parametrize("sigma", [0.7, 1.5])
def test_two_clusters_approach(sigma):
    x = torch.zeros(1, 1, 10, 3, dtype=torch.float64)
    x[..., 5:, 0] = 2.0
    out = gkalib.smooth(x, x, x, Gaussian(sigma))[0, 0]
    equal(out[9, 0] - out[0, 0], torch.tensor(2 * np.tanh(4 / (4 * sigma**2)), dtype=torch.float64))
