"""Nyströmformer: exact with every landmark, its convolution, and what it refuses."""

import pytest
import torch

from gkalib.layers import attention
from gkalib.masks import KeyPadding
from gkalib.smoothing import Nystrom, smooth
from tests.tolerance import equal

LENGTH = 12


def layer(**options):
    return attention("nystrom", **options)(24, 3, length=LENGTH, dtype=torch.float64)


def tokens(length=LENGTH):
    return torch.randn(2, length, 24, dtype=torch.float64)


def test_with_every_landmark_and_the_exact_inverse_it_is_softmax_attention():
    module, exact, x = (
        layer(landmarks=LENGTH, iterations=None),
        attention("softmax")(24, 3).double(),
        tokens(),
    )
    exact.load_state_dict(module.state_dict())
    difference = (module(x) - exact(x)).abs().max() / exact(x).abs().max()
    assert difference < 1e-8  # the weights' condition number times rounding


@pytest.mark.parametrize(("length", "landmarks"), [(12, 4), (11, 5)])
def test_the_layer_is_the_method_between_its_projections(length: int, landmarks: int):
    module, x = layer(landmarks=landmarks), tokens(length)
    heads = [
        part(x).unflatten(-1, (3, 8)).transpose(1, 2) for part in (module.query, module.key, module.value)
    ]
    out = smooth(*heads, module.kernel, method=Nystrom(landmarks))
    equal(module(x), module.proj(out.transpose(1, 2).flatten(2)))


def test_the_convolution_adds_each_heads_filtered_values():
    module, x = layer(landmarks=4, conv=3), tokens()
    module.proj = torch.nn.Identity()
    value = module.value(x).unflatten(-1, (3, 8))
    before, after = torch.zeros_like(value), torch.zeros_like(value)
    before[:, 1:], after[:, :-1] = value[:, :-1], value[:, 1:]
    taps = module.conv.weight[:, 0, :, 0]
    added = sum(t[:, None] * v for t, v in zip(taps.T, (before, value, after), strict=True))
    with_conv = module(x)
    module.conv = None
    equal(with_conv - module(x), added.flatten(2))
    assert sum(p.numel() for p in taps) == 3 * 3


def test_a_padded_batch_is_its_sequences_one_by_one():
    module, x = layer(landmarks=4, conv=3), tokens()
    padded = module(x, mask=KeyPadding(torch.tensor([12, 7])))
    equal(padded[:1], module(x[:1]))
    equal(padded[1:, :7], module(x[1:, :7]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"landmarks": 13}, "nystrom: landmarks 13 is above the 12 tokens"),
        ({"landmarks": 0}, "nystrom: landmarks 0 is below 1"),
        ({"iterations": 0}, "nystrom: iterations must be at least 1, or None, not 0"),
        ({"conv": 4}, "nystrom: conv must be an odd size, not 4"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        layer(**options)


def test_what_it_cannot_do_it_says():
    module, x = layer(landmarks=4, conv=3), tokens()
    with pytest.raises(ValueError, match="12 queries do not match 8 keys"):
        module(x, context=x[:, :8])
    with pytest.raises(ValueError, match="4 landmarks are more than the 3 tokens"):
        module(x[:, :3])
