"""The labeled equations of chapter 6 that no test of the library covers."""

import math

import pytest
import torch

import gkalib
from gkalib.kernels import ExpDot, Gaussian
from gkalib.layers import attention
from gkalib.layers.l2 import inverse_phi
from tests.tolerance import equal


def _normal(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def _gaussian(gamma):
    return Gaussian((2 * gamma) ** -0.5)


def test_gamma_is_half_the_inverse_squared_bandwidth():
    query, key = _normal(1, 2, 7, 6), _normal(1, 2, 9, 6)
    distance = (query[..., :, None, :] - key[..., None, :, :]).square().sum(-1)
    equal(gkalib.attention_weights(query, key, _gaussian(0.3)), (-0.3 * distance).softmax(-1))


def test_a_key_is_scored_best_at_the_length_of_the_querys_shadow():
    query, direction = _normal(1, 1, 1, 6), _normal(6)
    direction = direction / direction.norm()
    lengths = torch.linspace(-3, 3, 241, dtype=torch.float64)
    scores = _gaussian(0.4).log(query, (lengths[:, None] * direction)[None, None])[0, 0, 0]
    shadow = (query[0, 0, 0] @ direction).item()
    by_formula = -0.4 * (query.square().sum() - 2 * lengths * shadow + lengths**2)
    torch.testing.assert_close(scores, by_formula, rtol=0, atol=1e-12)
    assert abs(lengths[scores.argmax()].item() - shadow) <= 0.0125


@pytest.mark.parametrize("gamma", [1 / 8, 1 / 16])
def test_the_spread_of_scores_of_normal_vectors(gamma):
    query, key = _normal(1, 1, 1500, 64), _normal(1, 1, 1500, 64)
    within_rows = _gaussian(gamma).log(query, key).var(-1).mean().item()
    assert within_rows == pytest.approx(6 * gamma**2 * 64, rel=0.03)
    assert (ExpDot().log(query, key)).var(-1).mean().item() == pytest.approx(1, rel=0.03)


def test_the_mean_score_of_a_place_falls_with_its_distance_from_the_mean_query():
    query, place = _normal(1, 1, 40, 5) + 2, _normal(1, 1, 3, 5)
    scores = _gaussian(0.4).log(query, place).mean(2)[0, 0]
    middle = query.mean(2)[0, 0]
    scatter = (query[0, 0] - middle).square().sum(-1).mean()
    torch.testing.assert_close(
        scores, -0.4 * ((place[0, 0] - middle).square().sum(-1) + scatter), rtol=1e-12, atol=0
    )


@pytest.mark.parametrize("kernel", [_gaussian(0.4), ExpDot(0.7)], ids=["gaussian", "dot product"])
@pytest.mark.parametrize("vote", [0.0, 1.3], ids=["plus one", "sink of gpt-oss"])
def test_a_key_at_the_origin_with_value_zero_is_softmax_plus_one(kernel, vote):
    query, key, value = _normal(1, 2, 7, 6), _normal(1, 2, 9, 6), _normal(1, 2, 9, 3)
    front = torch.zeros(1, 2, 1, 6, dtype=torch.float64)
    bias = torch.zeros(10, dtype=torch.float64)
    bias[0] = vote
    keys, values = torch.cat([front, key], 2), torch.cat([front[..., :3], value], 2)
    dot = query @ key.mT
    scores = 0.7 * dot if isinstance(kernel, ExpDot) else 0.8 * dot - 0.4 * key.square().sum(-1)[..., None, :]
    by_formula = scores.exp() @ value / (math.exp(vote) + scores.exp().sum(-1, keepdim=True))
    equal(gkalib.smooth(query, keys, values, kernel, bias=bias), by_formula)


def _largest(layer, x, **call):
    jacobian = torch.autograd.functional.jacobian(lambda one: layer(one[None], **call)[0], x)
    return torch.linalg.matrix_norm(jacobian.reshape(x.numel(), x.numel()), 2).item()


@pytest.mark.parametrize("sigma", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("causal", [False, True])
def test_one_head_of_gka_is_lipschitz_whatever_its_bandwidth(sigma, causal):
    layer = attention("gka", sigma=sigma, project_out=False)(8, 1).double()
    for tokens in (1, 2, 6):
        bound = math.sqrt(tokens) * (4 * inverse_phi(tokens - 1) + 1)
        for size in (0.1, 1.0, 3.0, 100.0):
            for _ in range(4):
                found = _largest(layer, sigma * size * _normal(tokens, 8), is_causal=causal)
                assert found <= bound * (1 + 1e-12)


def test_a_score_of_cosines_caps_every_weight():
    query, key, g = _normal(1, 1, 50, 3), _normal(1, 1, 9, 3), 2.5
    query, key = (one / one.norm(dim=-1, keepdim=True) for one in (query, key))
    cap = 1 / (1 + 8 * math.exp(-2 * g))
    assert gkalib.attention_weights(query, key, ExpDot(g)).max() < cap
    extreme = torch.cat([key[:, :, :1], -key[:, :, :1].expand(-1, -1, 8, -1)], 2)
    best = gkalib.attention_weights(key[:, :, :1], extreme, ExpDot(g))[0, 0, 0, 0].item()
    assert best == pytest.approx(cap, rel=1e-12)
