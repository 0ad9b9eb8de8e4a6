"""The slots of a layer: what is assigned is what is computed, and what does not fit is refused at once."""

import re

import pytest
import torch

from gkalib import smooth
from gkalib.kernels import DecayingPeriodicBank, ExpDot, Gaussian, Laplace
from gkalib.layers import Smoother, attention, variants
from gkalib.layers.parts import merge
from gkalib.masks import Causal, KeyPadding, Window
from gkalib.normalizers import RowSum, TopK, Unnormalized
from tests.layers.test_variant_laws import layer, smoothers, tokens
from tests.tolerance import equal

ASSIGNED = {
    "kernel": lambda: Laplace(3.0),
    "normalizer": lambda: TopK(3),
    "mask": lambda: Window(4),
}
SINGLE = [name for name in variants() if name != "mixed"]


def by_smooth(made: Smoother, x: torch.Tensor) -> torch.Tensor:
    """The layer's output from its own projections, slots and ``smooth``."""
    query, key, value = made.project(x, x)
    query, key = made.query_norm(query), made.key_norm(key)
    out = smooth(query, key, value, made.kernel, mask=made.mask, normalizer=made.normalizer, method="dense")
    return made.proj(merge(out))


@pytest.mark.parametrize("slot", ASSIGNED)
@pytest.mark.parametrize("name", SINGLE)
def test_an_assigned_slot_is_what_is_computed(name, slot):
    made, x = layer(name, method="dense"), tokens()
    if name == "karat" and slot == "mask":
        made.normalizer = RowSum()
    before = made(x)
    equal(before, by_smooth(made, x))
    setattr(made, slot, ASSIGNED[slot]())
    equal(made(x), by_smooth(made, x))
    assert (made(x) - before).abs().max() > 1e-6


def test_the_heads_of_a_mixed_layer_have_slots_of_their_own():
    mixed, x = layer("mixed"), tokens()
    before = mixed(x)
    first, second = smoothers(mixed)
    second.kernel = Laplace(3.0)
    outs = [by_smooth(branch, x) for branch in (first, second)]
    equal(mixed(x), mixed.proj(torch.cat(outs, -1)))
    assert (mixed(x) - before).abs().max() > 1e-6


def test_the_layers_mask_and_the_callers_are_both_obeyed():
    made, x = layer("softmax"), tokens()
    made.mask = Window(3)
    both = made(x, is_causal=True, mask=KeyPadding(torch.tensor([9, 12])))
    made.mask = Window(3) & Causal() & KeyPadding(torch.tensor([9, 12]))
    equal(both, made(x))


def test_a_slot_owns_its_parameters():
    made = attention("softmax")(16, 2)
    count = len(list(made.parameters()))
    made.kernel = Gaussian(torch.tensor([1.0, 2.0]), learn=True) * DecayingPeriodicBank(2, 3)
    assert len(list(made.parameters())) == count + 5
    assert "kernel.first.log_sigma" in made.state_dict()
    made(torch.randn(1, 5, 16)).sum().backward()
    assert (made.kernel.first.log_sigma.grad != 0).all()
    made.kernel = ExpDot()
    assert len(list(made.parameters())) == count


def test_two_layers_may_share_a_kernel():
    first, second = (attention("softmax")(16, 2) for _ in range(2))
    first.kernel = second.kernel = Gaussian(1.5, learn=True)
    both = torch.nn.Sequential(first, second)
    assert sum("log_sigma" in name for name, _ in both.named_parameters()) == 1
    both(torch.randn(1, 5, 16)).square().sum().backward()
    assert first.kernel.log_sigma.grad != 0


@pytest.mark.parametrize("name", SINGLE)
@pytest.mark.parametrize(
    ("slot", "value", "message"),
    [
        ("kernel", None, "kernel must be a gkalib kernel such as Gaussian(1.0), not None"),
        ("kernel", Gaussian, "kernel must be a gkalib kernel such as Gaussian(1.0), not <class"),
        ("kernel", "gaussian", "kernel must be a gkalib kernel such as Gaussian(1.0), not 'gaussian'"),
        ("kernel", RowSum(), "kernel must be a gkalib kernel such as Gaussian(1.0), not RowSum("),
        ("kernel", Gaussian(torch.ones(3)), "Gaussian has parameters for 3 heads, the layer has 4"),
        ("normalizer", None, "normalizer must be a gkalib normalizer such as RowSum(), not None"),
        ("normalizer", torch.softmax, "normalizer must be a gkalib normalizer such as RowSum(), not <built"),
        ("normalizer", TopK, "normalizer must be a gkalib normalizer such as RowSum(), not <class"),
        ("mask", "causal", "mask must be a gkalib mask such as Causal(), not 'causal'"),
        ("mask", True, "mask must be a gkalib mask such as Causal(), not True"),
        ("mask", RowSum(), "mask must be a gkalib mask such as Causal(), not RowSum("),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(name, slot, value, message):
    made = layer(name)
    before = getattr(made, slot)
    with pytest.raises(ValueError, match=f"^{name}: {re.escape(message)}"):
        setattr(made, slot, value)
    assert getattr(made, slot) is before


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("gka", {"sigma": 2.5}, ("GaussianKernelAttention(", "Gaussian(sigma=[2.5, 2.5]")),
        ("rbf", {}, ("RBFAttention(", "Gaussian(sigma=1)")),
        (
            "karat",
            {"length": 9, "rank": 2},
            ("KolmogorovArnoldAttention(", "(kernel): ExpDot(", "RowOperator("),
        ),
        ("gpa", {}, ("GaussianProcessAttention(", "DecayingPeriodicBank(")),
        ("krause", {"window": 4}, ("KrauseAttention(", "TopK(8)", "Window(4)")),
        ("softmax", {}, ("SoftmaxAttention(", "(kernel): ExpDot(", "RowSum(", "(mask): None")),
    ],
)
def test_print_names_the_variant_and_its_slots(name, options, words):
    printed = repr(attention(name, **options)(8, 2))
    assert all(word in printed for word in words), printed


def test_an_unnormalized_softmax_layer_sums():
    made, x = layer("softmax"), tokens()
    made.normalizer = Unnormalized()
    query, key, value = made.project(x, x)
    equal(made(x), made.proj(merge((query @ key.mT / 8**0.5).exp() @ value)))
