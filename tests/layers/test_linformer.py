"""Linformer: softmax attention where its maps are identities, and its own parameters."""

import pytest
import torch

from gkalib.layers import attention
from gkalib.masks import KeyPadding
from tests.tolerance import equal

LENGTH = 12


def layer(**options):
    return attention("linformer", **options)(24, 3, length=LENGTH, dtype=torch.float64)


def tokens(length=LENGTH):
    return torch.randn(2, length, 24, dtype=torch.float64)


@pytest.mark.parametrize("share", ["none", "heads", "values"])
def test_with_identities_it_is_softmax_attention(share):
    module, exact, x = layer(rank=LENGTH, share=share), attention("softmax")(24, 3).double(), tokens()
    exact.load_state_dict({n: p for n, p in module.state_dict().items() if not n.startswith("method")})
    with torch.no_grad():
        for given in module.method.parameters():
            given.copy_(torch.eye(LENGTH))
    equal(module(x), exact(x))


@pytest.mark.parametrize(
    ("share", "own"), [("none", 2 * 3 * 4 * LENGTH), ("heads", 2 * 4 * LENGTH), ("values", 4 * LENGTH)]
)
def test_the_maps_are_parameters_of_the_layer(share, own):
    module = layer(rank=4, share=share)
    assert sum(p.numel() for p in module.parameters()) == 4 * 24**2 + 24 + own
    maps = torch.cat([p.flatten() for p in module.method.parameters()])
    assert maps.abs().max() <= 0.5 and abs(maps.std().item() - 0.5 / 3**0.5) < 0.06
    module(tokens()).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in module.parameters())


def test_with_another_method_there_are_no_maps():
    module, x = layer(method="dense"), tokens()
    exact = attention("softmax")(24, 3).double()
    exact.load_state_dict(module.state_dict())
    equal(module(x), exact(x))


def test_the_maps_follow_a_copy_and_a_state():
    module, x = layer(rank=4), tokens()
    other = layer(rank=4)
    assert (other(x) - module(x)).abs().max() > 1e-3
    other.load_state_dict(module.state_dict())
    equal(other(x), module(x))
    halved = {name: p / 2 for name, p in module.named_parameters()}
    swapped = torch.func.functional_call(module, halved, (x,))
    other.load_state_dict(halved)
    equal(swapped, other(x))


def test_a_padded_batch_is_its_sequences_one_by_one():
    module, x = layer(rank=4), tokens()
    padded = module(x, mask=KeyPadding(torch.tensor([12, 7])))
    equal(padded[:1], module(x[:1]))
    equal(padded[1:, :7], module(x[1:, :7]))


def test_it_attends_to_a_context_up_to_its_length():
    x = tokens(5)
    assert layer(rank=4)(x, context=tokens(9)).shape == x.shape


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 13}, "linformer: rank 13 is above the 12 tokens"),
        ({"rank": 0}, "linformer: rank 0 is below 1"),
        ({"length": 0}, "linformer: length must be at least 1, not 0"),
        ({"share": "layers"}, "linformer: no share 'layers'. Known: none, heads, values"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        attention("linformer")(24, 3, **{"length": LENGTH, **options})
