"""Attention as captured: the recorders see what the layers solve, and leave no trace."""

import pytest
import torch
from torch import nn

from gkalib import attention, capture_attention, gpt, replace_attention, vit
from gkalib.analysis import mass
from gkalib.models import GPTConfig, ViTConfig
from gkalib.smoothing import compute_output, compute_weights
from tests.variants import HEADS, LENGTH, VARIANTS

SMALL = ViTConfig(image_size=16, patch_size=4, dim=32, depth=2, num_heads=4, num_classes=5)
TEXT = GPTConfig(vocab_size=11, context=12, dim=32, depth=3, num_heads=4, positions="rope")


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
    (seen,) = capture_attention(Host(layer), x)
    assert seen.path == "attn" and seen.weights.shape[1] == HEADS
    parts = seen.weights.split([problem.sizes[1] for problem in seen.problems], dim=1)
    pairs = zip(parts, seen.problems, strict=True)
    out = torch.cat([weights @ problem.value for weights, problem in pairs], dim=1)
    torch.testing.assert_close(layer.proj(out.transpose(1, 2).flatten(2)), layer(x), rtol=1e-4, atol=1e-5)


def test_the_problem_seen_is_the_layers_own():
    layer, x = attention("softmax", position="rope")(32, HEADS), torch.randn(2, LENGTH, 32)
    (seen,) = capture_attention(Host(layer), x)
    problem = layer.problem(x)
    for name in ("query", "key", "value"):
        torch.testing.assert_close(getattr(seen.problems[0], name), getattr(problem, name))
    torch.testing.assert_close(seen.weights, compute_weights(problem))


def test_a_method_that_is_not_exact_is_seen_as_it_is():
    layer = attention("nystrom", landmarks=4)(32, HEADS, length=LENGTH)
    x = torch.randn(1, LENGTH, 32)
    (seen,) = capture_attention(layer, x)
    definition = compute_output(layer.problem(x), "reference")
    assert not torch.allclose(seen.weights @ layer.problem(x).value, definition, atol=1e-3)


def test_a_layer_of_several_variants_is_one_entry():
    model = vit(SMALL, attention=attention("mixed", heads={"gka": 3, "softmax": 1}))
    images = torch.randn(2, 3, 16, 16)
    seen = capture_attention(model, images)
    assert [one.path for one in seen] == ["blocks.0.attn", "blocks.1.attn"]
    assert [problem.sizes[1] for problem in seen[0].problems] == [3, 1]
    assert [type(problem.kernel).__name__ for problem in seen[0].problems] == ["Gaussian", "ExpDot"]
    assert seen[0].weights.shape == (2, 4, 17, 17) and len(seen[0].problems) == 2
    plain = capture_attention(vit(SMALL, attention=["softmax", "gka"]), images)
    assert [type(one.problems[0].kernel).__name__ for one in plain] == ["ExpDot", "Gaussian"]


def test_a_decoder_is_seen_under_its_mask_with_its_registers():
    model = gpt(TEXT, registers=2, positions="rope")
    seen = capture_attention(model, torch.randint(11, (2, 12)))
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
        capture_attention(model, images)
    seen = capture_attention(replace_attention(model, "softmax").model, images)
    torch.testing.assert_close(model(images), before, rtol=1e-4, atol=1e-5)
    assert [one.path for one in seen] == ["blocks.0.attn", "blocks.1.attn"]


def test_a_capture_leaves_no_trace():
    model = vit(SMALL, drop_path=0.5).train()
    model.blocks[0].eval()
    modes = [module.training for module in model.modules()]
    images = torch.randn(1, 3, 16, 16)
    first, second = capture_attention(model, images), capture_attention(model, images)
    assert [module.training for module in model.modules()] == modes
    assert all(block.attn.method == "auto" for block in model.blocks)
    torch.testing.assert_close(first[1].weights, second[1].weights, rtol=0, atol=0)
    assert not first[0].weights.requires_grad


def test_methods_come_back_when_the_pass_fails():
    model = vit(SMALL)
    with pytest.raises(Exception, match="Input"):
        capture_attention(model, torch.randn(1, 3, 20, 20))
    assert all(block.attn.method == "auto" for block in model.blocks)


def test_what_was_captured_stays_when_the_model_changes():
    layer, x = attention("gka", sigma=2.0)(32, HEADS), torch.randn(1, LENGTH, 32)
    (seen,) = capture_attention(layer, x)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(2)
    assert not compute_weights(seen.problems[0]).requires_grad
    torch.testing.assert_close(compute_weights(seen.problems[0]), seen.weights)


def test_a_method_with_parameters_keeps_its_place():
    layer = attention("linformer", rank=4)(32, HEADS, length=LENGTH)
    before = list(layer.state_dict())
    capture_attention(layer, torch.randn(1, LENGTH, 32))
    assert list(layer.state_dict()) == before


def test_with_a_cache_earlier_keys_are_seen():
    model, ids = gpt(TEXT).eval(), torch.randint(11, (1, 6))
    whole = capture_attention(model, ids)
    cache = model.cache(1)
    with torch.no_grad():
        model(ids[:, :4], cache)
    for after, expected in zip(capture_attention(model, ids[:, 4:], cache), whole, strict=True):
        torch.testing.assert_close(after.weights, expected.weights[:, :, 4:])


def test_what_is_no_module_is_refused(as_a_user):
    with pytest.raises(ValueError, match=r"^capture_attention: model must be a module, not 'vit'"):
        capture_attention("vit", torch.zeros(1))
