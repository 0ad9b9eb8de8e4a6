"""The slots of a layer: what is assigned is what is computed, and what does not fit is refused at once."""

import re

import pytest
import torch

from gkalib import smooth
from gkalib.kernels import DecayingPeriodicBank, ExpDot, Gaussian, Laplace
from gkalib.layers import Smoother, attention, variants
from gkalib.layers.parts import merge
from gkalib.masks import Causal, KeyPadding, Window
from gkalib.normalizers import Dropout, RowSum, TopK
from tests.layers.test_variant_laws import layer, smoothers, tokens
from tests.tolerance import equal

ASSIGNED = {
    "kernel": lambda: Laplace(3.0),
    "normalizer": lambda: TopK(3),
    "mask": lambda: Window(4),
}
SINGLE = [name for name in variants() if name != "mixed"]
MEMORIES = {"gated", "delta", "gated_delta", "mesa"}
MORE = {"mixed", "parallax", "forgetting", *MEMORIES}  # what they smooth with is more than their slots


def by_smooth(made: Smoother, x: torch.Tensor) -> torch.Tensor:
    """The layer's output from its own projections, slots and ``smooth``."""
    query, key, value = made.project(x, x)
    query, key = made.query_norm(query), made.key_norm(key)
    out = smooth(query, key, value, made.kernel, mask=made.mask, normalizer=made.normalizer, method="dense")
    return made.proj(merge(out))


@pytest.mark.parametrize("slot", ASSIGNED)
@pytest.mark.parametrize("name", [name for name in SINGLE if name not in MORE])
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


@pytest.mark.parametrize("name", ["softmax", "karat"])  # whose normalizer has parameters
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
        ("mask", "causal", "mask must be a gkalib mask such as Causal(), a boolean tensor, or a function"),
        ("mask", Causal, "mask must be a gkalib mask such as Causal(), a boolean tensor, or a function"),
        ("mask", torch.ones(3, 3), "mask must be boolean"),
        ("mask", RowSum(), "mask must be a gkalib mask such as Causal(), a boolean tensor, or a function"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(name, slot, value, message, as_a_user):
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


def test_a_mask_may_be_a_function_or_a_tensor():
    made, x = layer("softmax"), tokens()
    wanted = made(x, is_causal=True)
    made.mask = lambda b, h, q, k: k <= q
    equal(made(x), wanted)
    made.mask = torch.ones(16, 16, dtype=torch.bool).tril()
    equal(made(x), wanted)
    made.mask = None
    equal(made(x, mask=lambda b, h, q, k: k <= q), wanted)


NO_PAIRS = {"linear", "linformer", "nystrom", "rpe", "skyformer", *MEMORIES}
ADDS = [name for name in variants() if name not in NO_PAIRS]


@pytest.mark.parametrize("name", ADDS)
def test_a_bias_is_added_to_the_scores_and_learns(name):
    made, x = layer(name), tokens()
    bias = torch.randn(4, 16, 16, dtype=torch.float64, requires_grad=True)
    out = made(x, bias=bias)
    equal(made(x, bias.detach()), out) if name != "karat" else None
    equal(made(x, bias=torch.zeros(1, 1)), made(x))
    (slope,) = torch.autograd.grad(out.square().sum(), bias)
    assert slope.isfinite().all() and slope.abs().max() > 1e-9
    if name not in MORE:
        query, key, value = made.project(x, x)
        query, key = made.query_norm(query), made.key_norm(key)
        slots = {"mask": made.mask, "normalizer": made.normalizer, "bias": bias, "method": "reference"}
        equal(out, made.proj(merge(smooth(query, key, value, made.kernel, **slots))))


@pytest.mark.parametrize("name", ["softmax", "gka", "gpa", "krause", "mixed"])
def test_numbers_in_attn_mask_are_a_bias_and_minus_infinity_hides(name):
    made, x = layer(name), tokens()
    bias = torch.randn(16, 16, dtype=torch.float64)
    seen = torch.rand(16, 16) < 0.6
    seen[3] = False  # a query that sees nothing
    numbers = bias.masked_fill(~seen, -torch.inf).requires_grad_()
    equal(made(x, numbers), made(x, seen, bias=bias))
    (slope,) = torch.autograd.grad(made(x, numbers).square().sum(), numbers)
    assert slope.isfinite().all() and (slope[~seen] == 0).all()
    equal(made(x, numbers, bias=bias), made(x, seen, bias=2 * bias))


def test_an_attn_mask_of_whole_numbers_is_refused():
    with pytest.raises(
        ValueError, match=r"^softmax: attn_mask must be boolean, True where a key is seen, or numbers"
    ):
        layer("softmax")(tokens(), torch.ones(16, 16, dtype=torch.long))
    with pytest.raises(ValueError, match=r"^softmax: bias \[15, 16\] does not broadcast"):
        layer("softmax")(tokens(), bias=torch.ones(15, 16, dtype=torch.float64))


@pytest.mark.parametrize(
    "name", [name for name in variants() if name not in {"nystrom", "skyformer", *MEMORIES}]
)
def test_dropout_of_weights_drops_in_training_only(name):
    made, x = layer(name, attn_drop=0.4), tokens()
    plain = layer(name)
    plain.load_state_dict(
        {k.replace("normalizer.normalizer", "normalizer"): v for k, v in made.state_dict().items()}
    )
    equal(made(x), plain(x))
    made.train()
    first, second = made(x), made(x)
    assert first.isfinite().all() and (first - second).abs().max() > 1e-6
    for one in smoothers(made):
        assert isinstance(one.normalizer, Dropout) and one.normalizer.p == 0.4


def test_dropout_has_the_mean_of_the_weights_and_stays_when_the_normalizer_changes():
    made, x = layer("softmax", attn_drop=0.5), tokens(1)
    made.normalizer = TopK(5)
    equal(made(x), by_smooth(made, x))
    wanted = made(x)
    made.train()
    many = made(x.expand(2000, -1, -1))
    deviation = many.std(0) / 2000**0.5
    assert ((many.mean(0) - wanted[0]).abs() < 6 * deviation + 1e-12).all()


def test_timms_vit_trains_with_attention_dropout():
    import timm

    made = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, depth=2, attn_drop_rate=0.3, attn_layer=attention("gka")
    )
    made(torch.randn(2, 3, 32, 32)).square().mean().backward()
    assert made.blocks[0].attn.normalizer.p == 0.3
