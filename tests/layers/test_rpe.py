"""What is special to kernelized attention with relative positions: formula, limit, two ways to compute it."""

import pytest
import torch
from torch import nn

from gkalib.layers import attention
from gkalib.layers.parts import HeadNorm, merge, split
from gkalib.masks import Causal, Window
from gkalib.smoothing import Cache, compute_weights
from tests.tolerance import agree, equal

DIM, HEADS, LENGTH = 32, 4, 16


def _layer(**options) -> nn.Module:
    """A layer with a table of lags drawn at random, and the same projections whatever the options."""
    options = {"length": LENGTH, "num_features": 12, "seed": 3} | options
    torch.manual_seed(7)
    layer = attention("rpe", **options)(DIM, HEADS).double()
    nn.init.normal_(layer.kernel.second.bias)
    return layer


def _tokens(length: int = LENGTH) -> torch.Tensor:
    return torch.randn(2, length, DIM, dtype=torch.float64)


def test_the_formula():
    layer, x = _layer(), _tokens(9)
    query, key, value = (split(projection(x), HEADS) for projection in (layer.query, layer.key, layer.value))
    query, key = (HeadNorm(8)(tensor) / 8**0.5 for tensor in (query, key))
    omega = layer.kernel.first.omega
    phi_query, phi_key = (
        (tensor @ omega.mT - tensor.square().sum(-1, keepdim=True) / 2).exp() for tensor in (query, key)
    )
    lag = torch.arange(9)[:, None] - torch.arange(9)
    weights = (phi_query @ phi_key.mT) * layer.kernel.second.bias[:, lag + LENGTH - 1].exp()
    out = merge(weights / weights.sum(-1, keepdim=True) @ value)
    equal(layer(x), layer.proj(out))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("options", [{}, {"features": "elu", "normalize": False}, {"scale": 4.0}])
def test_fourier_transforms_give_the_dense_sums_and_gradients(options, causal):
    layer, x = _layer(**options), _tokens()
    found = []
    for method in ("toeplitz", "dense"):
        layer.method = method
        out = layer(x, is_causal=causal)
        found.append([out, *torch.autograd.grad(out.square().sum(), list(layer.parameters()))])
    for fast, dense in zip(*found, strict=True):
        agree(fast.float(), dense, dense.float())


@pytest.mark.parametrize("method", ["toeplitz", "dense"])
def test_without_a_table_it_is_the_linear_transformer(method):
    layer, x = _layer(features="elu", normalize=False, method=method), _tokens()
    nn.init.zeros_(layer.kernel.second.bias)
    linear = attention("linear", eps=0.0)(DIM, HEADS).double()
    linear.load_state_dict(
        {name: given for name, given in layer.state_dict().items() if not name.startswith("kernel.second")}
    )
    for causal in (False, True):
        equal(layer(x, is_causal=causal), linear(x, is_causal=causal))


def test_a_table_of_one_slope_forgets():
    """b falling steeply with the distance leaves each token itself."""
    layer, x = _layer(), _tokens()
    lags = torch.arange(-LENGTH + 1, LENGTH, dtype=torch.float64)
    layer.kernel.second.bias.data = (-100 * lags.abs()).expand(HEADS, -1)
    equal(compute_weights(layer.problem(x)), torch.eye(LENGTH, dtype=torch.float64).expand(2, HEADS, -1, -1))


@pytest.mark.parametrize("method", ["toeplitz", "dense"])
def test_decoding_gives_the_rows_of_the_full_pass(method):
    layer, x, cache = _layer(method=method), _tokens(), Cache(2, LENGTH)
    full = layer(x, is_causal=True, mask=Window(9)).float()
    start = 0
    for portion in x.split([5, 1, 1, 1, 8], dim=1):
        rows = full[:, start : start + portion.shape[1]].double()
        out = layer(portion, is_causal=True, mask=Window(9), cache=cache).float()
        agree(out, rows, rows.float())
        start += portion.shape[1]


def test_lags_are_signed():
    layer, x = _layer(), _tokens()
    before = layer(x, mask=Causal())
    layer.kernel.second.bias.data[:, : LENGTH - 1] = 5.0  # lags below zero: keys after their query
    equal(layer(x, mask=Causal()), before)
    assert (layer(x) - _layer()(x)).abs().max() > 1e-3


def test_refuses_more_tokens_than_its_table():
    with pytest.raises(ValueError, match="rpe: 17 tokens, its table of lags is made for 16"):
        _layer()(_tokens(17))
    with pytest.raises(ValueError, match="rpe: a cache of 17 tokens, its table of lags is made for 16"):
        _layer().cache(1, 17)
