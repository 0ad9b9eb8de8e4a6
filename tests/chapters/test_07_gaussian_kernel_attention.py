"""The labeled equations of chapter 7 that no test of the library holds already."""

import numpy as np
import pytest
import torch

import gkalib
from gkalib.kernels import Gaussian
from gkalib.layers import attention
from gkalib.smoothing import compute_weights
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


def test_modes_grow_by_their_gain():
    """X + W X M multiplies φ_k c by 1 + μ λ_k where W φ_k = λ_k φ_k and c M = μ c."""
    x = torch.randn(1, 1, 12, 6, dtype=torch.float64)
    layer = attention("gka", sigma=2.0, proj_bias=False)(6, 1, dtype=torch.float64)
    w, matrix = compute_weights(layer.problem(x[:, 0])).detach()[0, 0], layer.proj.weight.T.detach()
    lambdas, modes = torch.linalg.eig(w)
    mus, rows = torch.linalg.eig(matrix.T)
    part = modes[:, 3, None] * rows[:, 2]
    after = part + w.to(part.dtype) @ part @ matrix.to(part.dtype)
    error = (after - (1 + mus[2] * lambdas[3]) * part).abs().max()
    assert error < 1e-12
    equal(layer(x[:, 0]).detach()[0], w @ x[0, 0] @ matrix)


@pytest.mark.parametrize("name", ["vlt", "gka"])
def test_a_head_without_values_reads_its_own_channels(name):
    x = torch.randn(1, 9, 8, dtype=torch.float64)
    layer = attention(name, proj_bias=False)(8, 2, dtype=torch.float64)
    w, out = compute_weights(layer.problem(x))[0], layer.proj.weight.T
    select = torch.eye(8, dtype=torch.float64).split(4, dim=1)
    by_heads = sum(w[h] @ x[0] @ select[h] @ out[4 * h : 4 * h + 4] for h in range(2))
    equal(layer(x)[0], by_heads)
