"""Random features against the kernel whose mean they have: unbiased, if the directions are; and the layer."""

import math
from functools import cache

import pytest
import torch
from torch import Tensor

import gkalib
from gkalib.kernels import ExpDot, PositiveRandom, RandomFourier
from gkalib.kernels.features import orthogonal_gaussian
from gkalib.layers import attention
from gkalib.layers.parts import split
from gkalib.smoothing import compute_weights
from tests.tolerance import equal

DIM, DRAWS = 8, 2000
# A query and a key that share a direction with the axes: where directions that favor an orthant are seen.
QUERY = torch.full((DIM,), 0.35, dtype=torch.float64)
KEY = torch.linspace(0.1, 0.5, DIM, dtype=torch.float64)


def _estimates(draws: Tensor) -> Tensor:
    """The positive estimate of exp(q·k) from each matrix of rows ``[draws, r, d]``."""
    exponents = draws @ (QUERY + KEY) - (QUERY.square().sum() + KEY.square().sum()) / 2
    return exponents.exp().mean(-1)


def _errors(estimates: Tensor, truth: float) -> float:
    """How many standard errors the mean of independent estimates lies from the truth."""
    standard_error = estimates.std() / math.sqrt(len(estimates))
    return abs((estimates.mean() - truth) / standard_error).item()


@cache
def _library_draws() -> Tensor:
    return torch.stack([orthogonal_gaussian(DIM, DIM, seed=seed) for seed in range(DRAWS)])


def test_the_estimate_of_the_kernel_is_unbiased():
    """2000 draws of 8 orthogonal rows: within 4 standard errors, for q·k = 0.84 and the Gaussian alike."""
    assert _errors(_estimates(_library_draws()), (QUERY @ KEY).exp().item()) < 4
    waves = (_library_draws() @ (QUERY + KEY) / 1.5).cos().mean(-1)  # of q and −k
    kernel = RandomFourier(DIM, DIM, sigma=1.5, seed=3)
    equal(kernel(QUERY[None, None, None], -KEY[None, None, None]).squeeze(), waves[3])
    assert _errors(waves, (-(QUERY + KEY).square().sum() / (2 * 1.5**2)).exp().item()) < 4


def test_the_features_are_the_estimate():
    kernel = PositiveRandom(DIM, 2 * DIM, scale=1.0, seed=3)
    value = kernel(QUERY[None, None, None], KEY[None, None, None]).squeeze()
    equal(value, _estimates(kernel.omega[None]).squeeze())
    equal(_estimates(_library_draws())[:1], _estimates(orthogonal_gaussian(DIM, DIM, seed=0)[None]))


def test_more_features_come_closer_to_softmax():
    """The limit: four times the features halve the error, on average over 20 draws."""
    query, key = torch.randn(2, 1, 4, 20, DIM, dtype=torch.float64) / 2
    exact = gkalib.attention_weights(query, key, ExpDot())

    def error(features: int) -> float:
        draws = [PositiveRandom(DIM, features, seed=seed) for seed in range(20)]
        return sum((gkalib.attention_weights(query, key, d) - exact).norm().item() for d in draws)

    assert 1.7 < error(64) / error(256) < 2.3


@pytest.mark.parametrize("causal", [False, True])
def test_stabilizers_cancel(causal):
    """All three give one output while nothing over- or underflows."""
    x = torch.randn(2, 9, 32, dtype=torch.float64)
    layers = {name: _layer(seed=5, stabilizer=name) for name in ("none", "row", "max")}
    for layer in layers.values():
        layer.load_state_dict(layers["none"].state_dict())
    outs = {name: layer(x, is_causal=causal).detach() for name, layer in layers.items()}
    equal(outs["row"], outs["none"])
    equal(outs["max"], outs["none"])


def test_row_keeps_what_none_loses():
    """In float32 a long query underflows to a row of zeros; its own largest exponent brings it back."""
    query, key = 60 * torch.ones(1, 1, 1, DIM), torch.zeros(1, 1, 3, DIM)
    assert (gkalib.attention_weights(query, key, PositiveRandom(DIM, 8)) == 0).all()
    kept = gkalib.attention_weights(query, key, PositiveRandom(DIM, 8, stabilizer="row"))
    equal(kept.double(), torch.full((1, 1, 1, 3), 1 / 3, dtype=torch.float64).float().double())


def test_a_floor_with_the_largest_key_lets_the_future_in():
    """``max`` with a floor: a later key changes an earlier output. Without a floor, or with ``row``, not."""
    x = 8 * torch.randn(1, 9, 32, dtype=torch.float64)
    changed = x.clone()
    changed[:, -1] = 0  # the features of a short key are the largest
    moved = {}
    for stabilizer, floor in (("max", 1e-2), ("max", 0.0), ("row", 1e-2)):
        layer = _layer(seed=1, stabilizer=stabilizer, floor=floor)
        early, other = (layer(tokens, is_causal=True)[:, :-1].detach() for tokens in (x, changed))
        moved[stabilizer, floor] = (early - other).abs().max().item()
    assert moved["max", 1e-2] > 1e-4
    assert moved["max", 0.0] < 1e-12 and moved["row", 1e-2] == 0


def _layer(**options) -> torch.nn.Module:
    return attention("performer", **options)(32, 4).double()


def test_the_formula():
    layer, x = _layer(num_features=6), torch.randn(2, 7, 32, dtype=torch.float64)
    query, key = (split(projection(x), 4) * 8**-0.25 for projection in (layer.query, layer.key))
    omega = layer.kernel.omega
    phi = [(t @ omega.T - t.square().sum(-1, keepdim=True) / 2).exp() / 6**0.5 for t in (query, key)]
    kernel = phi[0] @ phi[1].mT
    equal(compute_weights(layer.problem(x)).detach(), (kernel / kernel.sum(-1, keepdim=True)).detach())


def test_the_number_of_features():
    assert _layer().kernel.omega.shape == (math.floor(8 * math.log(8)), 8) == (16, 8)
    assert _layer(num_features=5).kernel.omega.shape == (5, 8)
    assert attention("performer")(4, 4).kernel.omega.shape == (1, 1)


def test_rows_are_saved_and_redrawn():
    first, second = _layer(), _layer()
    assert not torch.equal(first.kernel.omega, second.kernel.omega)
    second.load_state_dict(first.state_dict())
    equal(first.kernel.omega, second.kernel.omega)
    first.redraw(seed=7)
    equal(first.kernel.omega, orthogonal_gaussian(16, 8, seed=7))
    assert not torch.equal(first.kernel.omega, second.kernel.omega)
    assert {name for name, _ in first.named_parameters()} == {
        "query.weight", "key.weight", "value.weight", "proj.weight", "proj.bias",
    }  # fmt: skip


def test_blocks_are_orthogonal_and_lengths_are_gaussian():
    rows = orthogonal_gaussian(3 * DIM, DIM, seed=0)
    for block in rows.split(DIM):
        gram = block @ block.T
        equal(gram, gram.diagonal().diag())
    lengths = _library_draws().square().sum(-1)  # chi-squared with d degrees of freedom: mean d
    assert _errors(lengths.flatten(), DIM) < 4
