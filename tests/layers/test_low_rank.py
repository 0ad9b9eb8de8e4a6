"""Nyströmformer, Skyformer and Linformer: exact with every token a landmark, and what each adds."""

import pytest
import torch

from gkalib.layers import attention
from gkalib.masks import KeyPadding
from gkalib.smoothing import Nystrom, smooth
from tests.tolerance import equal

LENGTH = 12


def layer(name, **options):
    sized = {"length": LENGTH} if attention(name).sized else {}
    return attention(name, **options)(24, 3, **sized, dtype=torch.float64)


def tokens(length=LENGTH):
    return torch.randn(2, length, 24, dtype=torch.float64)


def distance_to(exact, module):
    """How far an approximation is from what its own weights give in another layer, relative to that."""
    exact.load_state_dict({n: p for n, p in module.state_dict().items() if not n.startswith("method")})
    x = tokens()
    return (module(x) - exact(x)).abs().max() / exact(x).abs().max()


def test_nystrom_with_every_landmark_and_the_exact_inverse_is_softmax_attention():
    module = layer("nystrom", landmarks=LENGTH, iterations=None)
    assert distance_to(layer("softmax"), module) < 1e-8  # the weights' condition number times rounding


def test_skyformer_with_every_token_a_landmark_is_exact():
    module = layer("skyformer", landmarks=2 * LENGTH, ridge=0.0, iterations=None, sampling="spaced")
    exact = layer("skyformer", method="dense")
    assert distance_to(exact, module) < 1e-8  # the Gram matrix's condition number times rounding


@pytest.mark.parametrize("share", ["none", "heads", "values"])
def test_linformer_with_identities_is_softmax_attention(share):
    module = layer("linformer", rank=LENGTH, share=share)
    with torch.no_grad():
        for given in module.method.parameters():
            given.copy_(torch.eye(LENGTH))
    assert distance_to(layer("softmax"), module) < 1e-14


def test_linformer_with_another_method_has_no_maps():
    assert distance_to(layer("softmax"), layer("linformer", method="dense")) < 1e-14


@pytest.mark.parametrize(("length", "landmarks"), [(12, 4), (11, 5)])
def test_nystrom_is_the_method_between_its_projections(length: int, landmarks: int):
    module, x = layer("nystrom", landmarks=landmarks), tokens(length)
    heads = [module.heads(part(x)) for part in (module.query, module.key, module.value)]
    out = smooth(*heads, module.kernel, method=Nystrom(landmarks))
    equal(module(x), module.proj(out.transpose(1, 2).flatten(2)))


def test_the_convolution_adds_each_heads_filtered_values():
    module, x = layer("nystrom", landmarks=4, conv=3), tokens()
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


def test_a_padded_batch_with_a_convolution_is_its_sequences_one_by_one():
    module, x = layer("nystrom", landmarks=4, conv=3), tokens()
    padded = module(x, mask=KeyPadding(torch.tensor([12, 7])))
    equal(padded[:1], module(x[:1]))
    equal(padded[1:, :7], module(x[1:, :7]))


def test_what_nystrom_cannot_do_it_says():
    module, x = layer("nystrom", landmarks=4, conv=3), tokens()
    with pytest.raises(ValueError, match="12 queries do not match 8 keys"):
        module(x, context=x[:, :8])
    with pytest.raises(ValueError, match="4 landmarks are more than the 3 tokens"):
        module(x[:, :3])


def test_skyformer_takes_at_most_128_landmarks_and_no_more_than_tokens():
    ranks = [attention("skyformer")(24, 3, length=n).method.rank for n in (1, 5, 12, 128, 500)]
    assert ranks == [2, 4, 12, 128, 128]


@pytest.mark.parametrize(
    ("share", "own"), [("none", 2 * 3 * 4 * LENGTH), ("heads", 2 * 4 * LENGTH), ("values", 4 * LENGTH)]
)
def test_linformers_maps_are_parameters_of_the_layer(share, own):
    module = layer("linformer", rank=4, share=share)
    assert sum(p.numel() for p in module.parameters()) == 4 * 24**2 + 24 + own
    maps = torch.cat([p.flatten() for p in module.method.parameters()])
    assert maps.abs().max() <= 0.5 and abs(maps.std().item() - 0.5 / 3**0.5) < 0.06
    module(tokens()).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in module.parameters())


def test_linformers_maps_follow_a_copy_and_a_state():
    module, x = layer("linformer", rank=4), tokens()
    other = layer("linformer", rank=4)
    assert (other(x) - module(x)).abs().max() > 1e-3
    other.load_state_dict(module.state_dict())
    equal(other(x), module(x))
    halved = {name: p / 2 for name, p in module.named_parameters()}
    swapped = torch.func.functional_call(module, halved, (x,))
    other.load_state_dict(halved)
    equal(swapped, other(x))


def test_linformer_attends_to_a_context_up_to_its_length():
    x = tokens(5)
    assert layer("linformer", rank=4)(x, context=tokens(9)).shape == x.shape
