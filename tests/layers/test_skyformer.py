"""Skyformer: kernelized attention where every token is a landmark, and what it refuses."""

import pytest
import torch

from gkalib.layers import attention
from gkalib.masks import KeyPadding
from gkalib.smoothing import compute_weights
from tests.tolerance import equal

LENGTH = 12


def layer(**options):
    return attention("skyformer", **options)(24, 3, length=LENGTH, dtype=torch.float64)


def tokens(length=LENGTH):
    return torch.randn(2, length, 24, dtype=torch.float64)


def test_its_weights_are_the_papers_scaled_exponentials():
    module, x = layer(), tokens()
    problem = module.problem(x)
    query, key, root_d = problem.query, problem.key, 8**0.5
    d_query, d_key = ((one.square().sum(-1) / root_d).exp() for one in (query, key))
    scaled = d_query[..., None] ** -0.5 * (query @ key.mT / root_d).exp() * d_key[..., None, :] ** -0.5
    equal(compute_weights(problem), scaled)


def test_with_every_token_a_landmark_it_is_exact():
    module = layer(landmarks=2 * LENGTH, ridge=0.0, iterations=None, sampling="spaced")
    exact, x = layer(method="dense"), tokens()
    exact.load_state_dict(module.state_dict())
    difference = (module(x) - exact(x)).abs().max() / exact(x).abs().max()
    assert difference < 1e-8  # the Gram matrix's condition number times rounding


def test_a_padded_batch_is_its_sequences_one_by_one():
    module, x = layer(landmarks=6), tokens()
    padded = module(x, mask=KeyPadding(torch.tensor([12, 7])))
    equal(padded[:1], module(x[:1]))
    equal(padded[1:, :7], module(x[1:, :7]))


def test_it_takes_at_most_128_landmarks_and_no_more_than_tokens():
    ranks = [attention("skyformer")(24, 3, length=n).method.rank for n in (1, 5, 12, 128, 500)]
    assert ranks == [2, 4, 12, 128, 128]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"landmarks": 26}, "skyformer: landmarks 26 is above twice the 12 tokens"),
        ({"landmarks": 5}, "skyformer: landmarks must be even, half queries and half keys, not 5"),
        ({"landmarks": 0}, "skyformer: landmarks must be even, half queries and half keys, not 0"),
        ({"sigma": 0.0}, "skyformer: sigma must be positive and finite, not 0.0"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        layer(**options)
