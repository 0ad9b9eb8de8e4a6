"""Gaussian Process Attention: the bank's parameters, its limits, and what decoding and positions do."""

import math

import torch

from gkalib.kernels import ExpDot
from gkalib.layers import attention
from gkalib.smoothing import compute_weights
from tests.tolerance import equal

SMALL = {"num_terms": 5, "length": 20.0, "tau": (2.0, 9.0)}


def _layer(**options):
    return attention("gpa", **{**SMALL, **options})(32, 4).double()


def _tokens(count: int = 16) -> torch.Tensor:
    return torch.randn(2, count, 32, dtype=torch.float64)


def test_the_paper_starts_at_64_on_the_diagonal():
    bank = attention("gpa")(32, 4).double().kernel.second
    equal(bank.lag_table(3)[:, 0], torch.full((4,), 64.0, dtype=torch.float64))
    sigma = attention("gpa", num_terms=6, sigma=0.5)(32, 4).double().kernel.second
    equal(sigma.lag_table(3)[:, 0], torch.full((4,), 6 * 0.25, dtype=torch.float64))


def test_weights_are_the_formula():
    layer, x = _layer(), _tokens()
    query, key = layer.heads(layer.query(x)), layer.heads(layer.key(x))
    lag = torch.arange(16)[:, None] - torch.arange(16)
    delta = lag.abs()[..., None]
    tau, length = torch.linspace(2, 9, 5).double(), 20.0
    bank = (torch.exp(-delta / length) * torch.exp(-2 * torch.sin(delta / tau) ** 2)).sum(-1)
    scores = (query @ key.mT / math.sqrt(8) + bank).masked_fill(lag < 0, -torch.inf)
    weights = compute_weights(layer.problem(x, is_causal=True))
    # The bank's own numbers are float32 logarithms, which the layer only widens.
    torch.testing.assert_close(weights, scores.softmax(-1), rtol=1e-5, atol=1e-7)
    equal(compute_weights(layer.problem(x, is_causal=True), "dense"), weights)


def test_a_bank_of_zeros_is_softmax_attention_and_stays_zero():
    layer, x = _layer(sigma=0.0), _tokens()
    softmax = attention("softmax")(32, 4).double()
    softmax.load_state_dict({k: v for k, v in layer.state_dict().items() if not k.startswith("kernel")})
    for is_causal in (False, True):
        equal(layer(x, is_causal=is_causal), softmax(x, is_causal=is_causal))
    layer(x, is_causal=True).square().sum().backward()
    assert (layer.kernel.second.sigma.grad == 0).all() and (layer.kernel.second.log_tau.grad == 0).all()


def test_the_bank_alone_knows_lags_and_rope_adds_its_own():
    x = _tokens()
    away = tuple(torch.arange(16) + 100 for _ in range(2))
    for position in (None, "rope"):
        layer = _layer(position=position)
        equal(layer(x, positions=away), layer(x))
    bank, both = _layer(), _layer(position="rope")
    both.load_state_dict(bank.state_dict())
    assert (both(x) - bank(x)).abs().max() > 1e-3


def test_equation_6_is_softmax_over_rotated_products_plus_the_bank():
    layer, x = _layer(position="rope"), _tokens()
    problem = layer.problem(x, is_causal=True)
    places = torch.arange(16)
    query = layer.position(layer.heads(layer.query(x)), places)
    key = layer.position(layer.heads(layer.key(x)), places)
    lag = (places[:, None] - places).abs()
    scores = ExpDot().log(query, key) + layer.kernel.second.lag_table(16)[:, lag]
    scores = scores.masked_fill(places[:, None] < places, -torch.inf)
    equal(compute_weights(problem), scores.softmax(-1))


def test_a_long_lag_keeps_its_digits_in_half_precision():
    """Lag 257 is no bfloat16; the table must follow the parameters, not the rounded lags."""
    bank = attention("gpa", num_terms=2)(32, 4, dtype=torch.bfloat16).kernel.second
    table = bank.lag_table(400)
    assert table.dtype == torch.float32
    torch.testing.assert_close(table.double(), bank.double().lag_table(400), rtol=1e-4, atol=1e-5)
