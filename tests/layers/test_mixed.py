"""Heads of several variants in one layer, and layers of several variants in one model."""

import pytest
import torch

from gkalib.layers import attention, layers
from tests.tolerance import equal


def test_heads_of_one_variant_are_that_variant():
    x = torch.randn(2, 9, 32, dtype=torch.float64)
    alone = attention("gka")(32, 4).double()
    mixed = attention("mixed", heads={"gka": 1})(32, 4).double()
    mixed.branches["gka"].kernel.log_sigma.data.copy_(alone.kernel.log_sigma)
    mixed.proj.load_state_dict(alone.proj.state_dict())
    equal(mixed(x), alone(x))


def test_each_variant_gets_its_own_channels():
    mixed = attention("mixed", heads={"gka": 3, "softmax": 1})(32, 8)
    gka, softmax = mixed.branches["gka"], mixed.branches["softmax"]
    assert (gka.num_heads, gka.channels, softmax.num_heads, softmax.channels) == (6, (0, 24), 2, (24, 32))
    x = torch.randn(1, 9, 32)
    changed = x.clone()
    changed[..., 24:] += 1
    equal_heads = gka(x), gka(changed)
    assert torch.equal(*equal_heads) and not torch.equal(softmax(x), softmax(changed))


def test_variants_may_have_options():
    gka = attention("gka", sigma=3.0)
    mixed = attention("mixed", heads={"gka": 1, "softmax": 1}, variants={"gka": gka})(32, 4)
    assert mixed.branches["gka"].kernel.sigma.tolist() == pytest.approx([3.0, 3.0])


def test_layers_are_cycled():
    gka = attention("gka", sigma=2.0)
    assert layers([gka, "softmax"], 3) == [gka, attention("softmax"), gka]
    with pytest.raises(ValueError, match=r"^attention: the list of layers is empty"):
        layers([], 3)
