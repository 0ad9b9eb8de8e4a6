"""The labeled equations of chapter 4."""

import math

import pytest
import torch

import gkalib
from gkalib.kernels import ExpDot, Gaussian
from gkalib.masks import Causal, KeyPadding, Window
from tests.tolerance import equal

D = 32


def _normal(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def _with_votes(query, key, log_votes, sigma):
    """Gaussian weights of keys that count exp(log_votes) times, written without the library."""
    distance = (query[..., :, None, :] - key[..., None, :, :]).square().sum(-1)
    similarity = log_votes.exp()[..., None, :] * (-distance / (2 * sigma**2)).exp()
    return similarity / similarity.sum(-1, keepdim=True)


def test_softmax_attention_is_the_smoother():
    query, key, value = _normal(2, 3, 7, D), _normal(2, 3, 9, D), _normal(2, 3, 9, 5)
    similarity = (query @ key.mT / math.sqrt(D)).exp()
    by_formula = similarity / similarity.sum(-1, keepdim=True) @ value
    equal(gkalib.smooth(query, key, value, ExpDot(), method="reference"), by_formula)
    equal(gkalib.smooth(query, key, value, ExpDot()), by_formula)


def test_the_kernel_is_a_gaussian_times_two_norms():
    query, key = _normal(1, 2, 7, D), _normal(1, 2, 9, D)
    norms = [one.square().sum(-1) / (2 * math.sqrt(D)) for one in (query, key)]
    factors = norms[0][..., :, None] + Gaussian(D**0.25).log(query, key) + norms[1][..., None, :]
    torch.testing.assert_close(ExpDot().log(query, key), factors, rtol=0, atol=1e-12)


def test_attention_is_gaussian_smoothing_with_votes():
    query, key = _normal(2, 3, 7, D), _normal(2, 3, 9, D)
    votes = key.square().sum(-1) / (2 * math.sqrt(D))
    weights = gkalib.attention_weights(query, key, ExpDot())
    torch.testing.assert_close(_with_votes(query, key, votes, D**0.25), weights, rtol=1e-12, atol=1e-14)
    equal_votes = gkalib.attention_weights(query, key, Gaussian(D**0.25))
    torch.testing.assert_close(
        _with_votes(query, key, 0 * votes, D**0.25), equal_votes, rtol=1e-12, atol=1e-14
    )
    assert (weights - equal_votes).abs().max() > 0.01


@pytest.mark.parametrize("scale", [0.05, 0.3, 1.7])
def test_temperature_is_bandwidth_and_scales_the_votes(scale):
    query, key = _normal(1, 2, 7, 6), _normal(1, 2, 9, 6)
    votes = scale / 2 * key.square().sum(-1)
    weights = gkalib.attention_weights(query, key, ExpDot(scale))
    torch.testing.assert_close(_with_votes(query, key, votes, scale**-0.5), weights, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("stretch", [0.0, 0.3, 1.0, 3.0])
def test_votes_within_r_nats_move_at_most_tanh_r_over_4(stretch):
    query, key = _normal(4, 8, 50, D), _normal(4, 8, 20, D) * (1 + stretch * torch.rand(4, 8, 20, 1).double())
    if stretch == 0.0:
        key = key / key.norm(dim=-1, keepdim=True)
    votes = key.square().sum(-1) / (2 * math.sqrt(D))
    r = votes.amax(-1) - votes.amin(-1)
    gaussian = gkalib.attention_weights(query, key, Gaussian(D**0.25))
    moved = (gkalib.attention_weights(query, key, ExpDot()) - gaussian).abs().sum(-1) / 2
    assert (moved <= (r / 4).tanh()[..., None] + 1e-12).all()


@pytest.mark.parametrize(
    "mask", [Causal(), Window(3), Causal() & Window(3), KeyPadding(torch.tensor([4]))], ids=repr
)
def test_a_mask_multiplies_the_kernel(mask):
    query, key = _normal(1, 2, 9, D), _normal(1, 2, 9, D)
    index = torch.arange(9)
    seen = {
        "Causal()": index[None] <= index[:, None],
        "Window(3)": (index[None] - index[:, None]).abs() < 3,
        "Causal() & Window(3)": (index[None] <= index[:, None]) & (index[None] > index[:, None] - 3),
        "KeyPadding(1 lengths)": (index < 4).expand(9, 9),
    }[repr(mask)]
    similarity = seen * (query @ key.mT / math.sqrt(D)).exp()
    by_formula = similarity / similarity.sum(-1, keepdim=True)
    weights = gkalib.attention_weights(query, key, ExpDot(), mask=mask)
    torch.testing.assert_close(weights, by_formula, rtol=1e-12, atol=1e-14)


def test_moving_the_keys_changes_the_gaussian_alone():
    query, key, shift = _normal(1, 2, 7, D), _normal(1, 2, 9, D), _normal(1, 2, 1, D)
    before, after = (gkalib.attention_weights(query, one, ExpDot()) for one in (key, key + shift))
    torch.testing.assert_close(after, before, rtol=1e-11, atol=1e-14)
    before, after = (gkalib.attention_weights(query, one, Gaussian(D**0.25)) for one in (key, key + shift))
    assert (after - before).abs().max() > 0.01
    both = gkalib.attention_weights(query + shift, key + shift, Gaussian(D**0.25))
    torch.testing.assert_close(both, before, rtol=1e-11, atol=1e-14)
    # the log votes gain a linear function of the key and a constant
    gain = ((key + shift).square().sum(-1) - key.square().sum(-1)) / (2 * math.sqrt(D))
    line = (key @ shift.mT)[..., 0] / math.sqrt(D)
    torch.testing.assert_close(gain - line, (gain - line).mean(-1, keepdim=True).expand_as(gain))


def test_keys_on_a_sphere_have_equal_votes():
    query, center = _normal(1, 2, 7, 6), _normal(1, 2, 1, 6)
    key = torch.nn.functional.normalize(_normal(1, 2, 40, 6), dim=-1) * 3 - center
    unknowns = torch.cat([2 * key, -torch.ones_like(key[..., :1])], dim=-1)
    found = torch.linalg.lstsq(unknowns, -key.square().sum(-1, keepdim=True)).solution[:, :, :6].mT
    torch.testing.assert_close(found, center)
    by_distance = gkalib.attention_weights(query, key + found, Gaussian(6**0.25))
    torch.testing.assert_close(
        by_distance, gkalib.attention_weights(query, key, ExpDot()), rtol=1e-10, atol=1e-14
    )
