"""A look at a model: the hooks see what the layers solve, and each measure is its formula."""

import math

import pytest
import torch
from torch import nn

from gkalib import attention, gpt, replace_attention, vit
from gkalib.models import GPTConfig, ViTConfig
from gkalib.smoothing import solve, weights_of
from gkalib.viz import entropy, layers, magnitudes, mass, measures, negative, neighbors, own, received
from tests.variants import HEADS, LENGTH, VARIANTS

SMALL = ViTConfig(image_size=16, patch_size=4, dim=32, depth=2, num_heads=4, num_classes=5)
TEXT = GPTConfig(vocab_size=11, context=12, dim=32, depth=3, num_heads=4, positions="rope")
ROWS = torch.tensor(
    [[0.5, 0.5, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25], [0.1, 0.2, 0.3, 0.4]]
)
SIGNED = torch.tensor([[2.0, -1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]])


class Host(nn.Module):
    """One layer, called as a block calls it."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.attn = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attn(x)


@pytest.mark.parametrize("name", VARIANTS)
def test_the_weights_seen_make_the_layers_output(name: str):
    # Whatever the variant and its method: weights times values, merged and projected, is what it answers.
    layer = VARIANTS[name].make(name)
    x = torch.randn(2, LENGTH, 32)
    (seen,) = layers(Host(layer), x)
    assert seen.path == "attn" and len(seen.variants) == HEADS
    parts = seen.weights.split([problem.sizes[1] for problem in seen.problems], dim=1)
    pairs = zip(parts, seen.problems, strict=True)
    out = torch.cat([weights @ problem.value for weights, problem in pairs], dim=1)
    torch.testing.assert_close(layer.proj(out.transpose(1, 2).flatten(2)), layer(x), rtol=1e-4, atol=1e-5)


def test_the_problem_seen_is_the_layers_own():
    layer, x = attention("softmax", position="rope")(32, HEADS), torch.randn(2, LENGTH, 32)
    (seen,) = layers(Host(layer), x)
    problem = layer.problem(x)
    for name in ("query", "key", "value"):
        torch.testing.assert_close(getattr(seen.problems[0], name), getattr(problem, name))
    torch.testing.assert_close(seen.weights, weights_of(problem))


def test_a_method_that_is_not_exact_is_seen_as_it_is():
    layer = attention("nystrom", landmarks=4)(32, HEADS, length=LENGTH)
    x = torch.randn(1, LENGTH, 32)
    (seen,) = layers(layer, x)
    definition = solve(layer.problem(x), "reference")
    assert not torch.allclose(seen.weights @ layer.problem(x).value, definition, atol=1e-3)


def test_a_layer_of_several_variants_is_one_entry():
    model = vit(SMALL, attention=attention("mixed", heads={"gka": 3, "softmax": 1}))
    images = torch.randn(2, 3, 16, 16)
    seen = layers(model, images)
    assert [one.path for one in seen] == ["blocks.0.attn", "blocks.1.attn"]
    assert seen[0].variants == ("gka", "gka", "gka", "softmax")
    assert seen[0].weights.shape == (2, 4, 17, 17) and len(seen[0].problems) == 2
    plain = layers(vit(SMALL, attention=["softmax", "gka"]), images)
    assert [one.variants[0] for one in plain] == ["softmax", "gka"]


def test_a_decoder_is_seen_under_its_mask_with_its_registers():
    model = gpt(TEXT, registers=2, positions="rope")
    seen = layers(model, torch.randint(11, (2, 12)))
    assert len(seen) == 3
    for one in seen:
        assert one.weights.shape == (2, 4, 14, 14)
        assert (one.weights.triu(1) == 0).all()
        torch.testing.assert_close(mass(one.weights), torch.ones(2, 4, 14))


def test_a_model_of_timm_is_seen_after_replacing_and_answers_the_same():
    timm = pytest.importorskip("timm")
    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=4
    ).eval()
    images = torch.randn(1, 3, 32, 32)
    before = model(images)
    with pytest.raises(ValueError, match="replace_attention"):
        layers(model, images)
    seen = layers(replace_attention(model, "softmax"), images)
    torch.testing.assert_close(model(images), before, rtol=1e-4, atol=1e-5)
    assert [one.path for one in seen] == ["blocks.0.attn", "blocks.1.attn"]


def test_a_look_leaves_no_trace():
    model = vit(SMALL, drop_path=0.5).train()
    model.blocks[0].eval()
    modes = [module.training for module in model.modules()]
    images = torch.randn(1, 3, 16, 16)
    first, second = layers(model, images), layers(model, images)
    assert [module.training for module in model.modules()] == modes
    assert not any(module._forward_pre_hooks for module in model.modules())
    torch.testing.assert_close(first[1].weights, second[1].weights, rtol=0, atol=0)
    assert not first[0].weights.requires_grad


def test_hooks_go_when_the_pass_fails():
    model = vit(SMALL)
    with pytest.raises(Exception, match="Input"):
        layers(model, torch.randn(1, 3, 20, 20))
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_a_cache_is_refused():
    model = gpt(TEXT)
    with pytest.raises(ValueError, match="look: the model is to be called without a cache"):
        layers(model, torch.randint(11, (1, 4)), model.cache(1))


def test_permuted_tokens_have_permuted_weights():
    layer, x, order = attention("gka")(32, HEADS), torch.randn(1, 9, 32), torch.randperm(9)
    (first,), (second,) = layers(layer, x), layers(layer, x[:, order])
    torch.testing.assert_close(second.weights, first.weights[:, :, order][..., order])


def test_measures_by_hand():
    torch.testing.assert_close(
        neighbors(ROWS), torch.tensor([2.0, 1.0, 4.0, 1 / (0.01 + 0.04 + 0.09 + 0.16)])
    )
    last = -(0.1 * math.log(0.1) + 0.2 * math.log(0.2) + 0.3 * math.log(0.3) + 0.4 * math.log(0.4))
    torch.testing.assert_close(entropy(ROWS), torch.tensor([math.log(2), 0.0, math.log(4), last]))
    torch.testing.assert_close(own(ROWS), torch.tensor([0.5, 0.0, 0.25, 0.4]))
    torch.testing.assert_close(received(ROWS), torch.tensor([1.85, 0.95, 0.55, 0.65]))
    torch.testing.assert_close(mass(ROWS), torch.ones(4))
    torch.testing.assert_close(negative(ROWS), torch.zeros(4))


def test_measures_of_rows_with_signs_by_hand():
    torch.testing.assert_close(magnitudes(SIGNED)[0], torch.tensor([0.5, 0.25, 0.25, 0.0]))
    torch.testing.assert_close(neighbors(SIGNED), torch.tensor([16 / 6, 0.0]))
    torch.testing.assert_close(entropy(SIGNED), torch.tensor([1.5 * math.log(2), 0.0]))
    torch.testing.assert_close(negative(SIGNED), torch.tensor([0.25, 0.0]))
    torch.testing.assert_close(mass(SIGNED), torch.tensor([2.0, 0.0]))
    torch.testing.assert_close(
        own(SIGNED), torch.tensor([0.25, 0.0])
    )  # the two queries are the last two keys


def test_one_scale_holds_every_row():
    weights = torch.randn(3, 2, 5, 8)
    assert (entropy(weights).exp() >= neighbors(weights) - 1e-5).all()
    assert (neighbors(weights) >= 1).all() and (neighbors(weights) <= 8).all()
    torch.testing.assert_close(neighbors(7 * weights), neighbors(weights))
    torch.testing.assert_close(received(weights).mean(-1), torch.ones(3, 2))


def test_uniform_causal_rows_give_the_first_key_the_harmonic_sum():
    uniform = torch.ones(6, 6).tril()
    uniform = uniform / uniform.sum(-1, keepdim=True)
    torch.testing.assert_close(received(uniform)[0], torch.tensor(sum(1 / i for i in range(1, 7))))
    torch.testing.assert_close(received(uniform)[-1], torch.tensor(1 / 6))


def test_all_measures_of_a_head_are_means():
    weights = torch.stack([ROWS, ROWS.flip(0)]).expand(2, 2, 4, 4)
    found = measures(weights, token=0)
    torch.testing.assert_close(found["neighbors"], neighbors(ROWS).mean().expand(2))
    torch.testing.assert_close(found["largest"], torch.tensor([1.85, 1.85]) / 4)
    torch.testing.assert_close(found["token"], torch.tensor([1.85, 1.85]) / 4)
    assert set(measures(weights)) == {"neighbors", "entropy", "own", "mass", "negative", "largest"}
    with pytest.raises(ValueError, match="look: 4 queries have no own keys among 3"):
        measures(weights[..., :3])
