"""The labeled equations of chapter 10: what contracts, what freezes, what a cut costs."""

import numpy as np
import pytest
import torch

import gkalib
from gkalib.kernels import Boxcar, Gaussian
from gkalib.layers import attention
from gkalib.masks import Causal, Window
from gkalib.normalizers import TopK


def points(n: int, d: int = 1, seed: int = 0) -> torch.Tensor:
    return torch.rand(1, 1, n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def diameter(x: torch.Tensor) -> float:
    return float(torch.cdist(x[0, 0], x[0, 0]).max())


def overlap(w: torch.Tensor) -> float:
    return float(torch.minimum(w[:, None], w[None]).sum(-1).min())


def talk(x: torch.Tensor, steps: int, kernel, **slots) -> torch.Tensor:
    for _ in range(steps):
        x = gkalib.smooth(x, x, x, kernel, **slots)
    return x


def test_bounded_confidence_is_a_boxcar_smoother():
    x, eps = points(40), 0.2
    near = (x[0, 0] - x[0, 0].T).abs() < eps
    by_hand = near.double() @ x[0, 0] / near.sum(1, keepdim=True)
    assert torch.allclose(gkalib.smooth(x, x, x, Boxcar(eps))[0, 0], by_hand, rtol=1e-13)


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize(
    ("kernel", "slots"),
    [
        (Gaussian(0.3), {}),
        (Boxcar(0.5), {}),
        (Gaussian(0.3), {"normalizer": TopK(13)}),
        (Gaussian(0.3), {"mask": Window(9)}),
        (Gaussian(0.3), {"mask": Causal()}),
    ],
    ids=["gaussian", "boxcar", "top-k", "window", "causal"],
)
def test_a_step_contracts_by_the_overlap(d, kernel, slots):
    x = points(20, d)
    w = gkalib.attention_weights(x, x, kernel, **slots)[0, 0]
    assert diameter(gkalib.smooth(x, x, x, kernel, **slots)) <= (1 - overlap(w)) * diameter(x) + 1e-14


@pytest.mark.parametrize("sigma", [0.5, 1.0])
def test_a_positive_kernel_contracts_by_its_smallest_value(sigma):
    x = points(20, 2)
    start = diameter(x)
    least = np.exp(-(start**2) / (2 * sigma**2))
    assert overlap(gkalib.attention_weights(x, x, Gaussian(sigma))[0, 0]) >= least
    for steps in (1, 3, 6):
        assert diameter(talk(x, steps, Gaussian(sigma))) <= (1 - least) ** steps * start


def test_more_than_half_is_consensus_and_half_need_not_be():
    n, sigma = 20, 1.0
    x = points(n) * 0.1 + 0.9 * (torch.arange(n) >= n // 2).double()[:, None]
    start = diameter(x)
    least = np.exp(-(start**2) / (2 * sigma**2))
    for k in (11, 14, 20):
        rate = 1 - (2 * k - n) / k * least
        for steps in (1, 5, 20):
            assert diameter(talk(x, steps, Gaussian(sigma), normalizer=TopK(k))) <= rate**steps * start
        assert diameter(talk(x, 150, Gaussian(sigma), normalizer=TopK(k))) < 1e-6
    for k in (3, 10):
        assert diameter(talk(x, 150, Gaussian(sigma), normalizer=TopK(k))) > 0.8


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("heads", [1, 2])
def test_after_some_layers_a_token_has_heard_few(layers, heads):
    torch.manual_seed(0)
    stack = [attention("krause", top_k=2)(4, heads, dtype=torch.float64) for _ in range(layers)]

    def network(x):
        for layer in stack:
            x = layer(x)
        return x

    x = torch.randn(1, 12, 4, dtype=torch.float64)
    heard = torch.autograd.functional.jacobian(network, x).abs().sum((0, 2, 3, 5)) > 0
    assert (heard.sum(1) <= (2 * heads + 1) ** layers).all()
    assert heard.sum(1).max() > heads * layers + 1


def test_the_error_of_top_k_is_the_mass_it_drops():
    x = points(30, 3)
    w = gkalib.attention_weights(x, x, Gaussian(0.4))[0, 0]
    full = gkalib.smooth(x, x, x, Gaussian(0.4))[0, 0]
    for k in (1, 4, 12, 30):
        cut = gkalib.smooth(x, x, x, Gaussian(0.4), normalizer=TopK(k))[0, 0]
        kept = gkalib.attention_weights(x, x, Gaussian(0.4), normalizer=TopK(k))[0, 0] > 0
        lost = w.masked_fill(kept, 0)
        mass = lost.sum(1, keepdim=True)
        average = lost @ x[0, 0] / mass.clamp(min=1e-300)
        assert torch.allclose(cut - full, mass * (cut - average), atol=1e-13)
        assert ((cut - full).norm(dim=1) <= mass[:, 0] * diameter(x) + 1e-13).all()


def test_the_output_jumps_where_two_keys_change_places():
    key = torch.tensor([0.0, 2.0, 3.0], dtype=torch.float64)[None, None, :, None]
    value = torch.tensor([5.0, 1.0, -4.0], dtype=torch.float64)[None, None, :, None]
    # At 1.5 the first and the last key are equally near, and the nearest two change.
    query = torch.tensor([1.5 - 1e-9, 1.5 + 1e-9], dtype=torch.float64)[None, None, :, None]
    before, after = gkalib.smooth(query, key, value, Gaussian(1.0), normalizer=TopK(2)).flatten()
    weight = np.exp(-(1.5**2) / 2) / (np.exp(-(1.5**2) / 2) + np.exp(-(0.5**2) / 2))
    assert float(after - before) == pytest.approx(weight * (-4.0 - 5.0), rel=1e-6)
    smooth_before, smooth_after = gkalib.smooth(query, key, value, Gaussian(1.0)).flatten()
    assert abs(float(smooth_after - smooth_before)) < 1e-7
