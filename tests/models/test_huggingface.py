"""Hugging Face's models: softmax changes nothing, and what does not fit is refused."""

import pytest
import torch
from torch import nn

from gkalib.layers import Smoother, attention
from gkalib.models import replace_attention

transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed: pip install transformers"
)

SIZES = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48}


def bert(**options):
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=50, max_position_embeddings=24, **SIZES, **options)
    return transformers.BertModel(config).eval()


def hugging_vit(**options):
    torch.manual_seed(0)
    config = transformers.ViTConfig(image_size=16, patch_size=4, **SIZES, **options)
    return transformers.ViTModel(config).eval()


def clip_vision():
    torch.manual_seed(0)
    config = transformers.CLIPVisionConfig(image_size=16, patch_size=4, **SIZES)
    return transformers.CLIPVisionModel(config).eval()


def smoothers(model):
    return [module for module in model.modules() if isinstance(module, Smoother)]


def pixels(side):
    return torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(1))


WORDS = torch.randint(0, 50, (2, 9), generator=torch.Generator().manual_seed(1))


def padded(model):
    keep = torch.ones(2, 9, dtype=torch.long)
    keep[1, 6:] = 0
    return model(WORDS, attention_mask=keep).last_hidden_state[keep.bool()]


CASES = {
    "Bert": (bert, lambda model: model(WORDS).last_hidden_state),
    "Bert, padded": (bert, padded),
    "Bert, eager and padded": (lambda: bert(attn_implementation="eager"), padded),
    "Bert, causal": (
        lambda: bert(is_decoder=True),
        lambda model: model(WORDS, use_cache=False).last_hidden_state,
    ),
    "Bert, causal and padded": (lambda: bert(is_decoder=True, use_cache=False), padded),
    "ViT": (hugging_vit, lambda model: model(pixels(16)).last_hidden_state),
    "ViT, no biases": (
        lambda: hugging_vit(qkv_bias=False),
        lambda model: model(pixels(16)).last_hidden_state,
    ),
    "CLIP": (clip_vision, lambda model: model(pixels(16)).last_hidden_state),
}


@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_softmax_changes_nothing(case):
    build, run = CASES[case]
    model = build()
    before = run(model)
    swap = replace_attention(model, "softmax")
    assert swap.model is model and not swap.fresh and not swap.dropped
    assert len(smoothers(model)) == 3
    after = run(model)
    assert torch.allclose(after, before, rtol=1e-4, atol=2e-6), (after - before).abs().max()
    assert not any(module.training for module in model.modules())


@pytest.mark.parametrize("case", ["Bert, padded", "Bert, causal", "ViT"])
@pytest.mark.parametrize("name", ["rbf", "gka", "krause"])
def test_another_variant_changes_the_output_and_learns(case, name):
    build, run = CASES[case]
    model = build()
    before = run(model).detach()
    after = run(replace_attention(model, name).model)
    assert after.isfinite().all()
    assert (after - before).abs().max() > 1e-4
    after.square().mean().backward()
    for layer in smoothers(model):
        assert layer.name() == name
        assert all(parameter.grad.abs().max() > 0 for parameter in layer.parameters())


def test_options_are_taken():
    model = replace_attention(bert(), attention("krause", top_k=2, window=4)).model
    assert [layer.normalizer.k for layer in smoothers(model)] == [2, 2, 2]
    assert isinstance(smoothers(model)[0].proj, nn.Identity)  # Bert's own projection stays in place
    assert model.encoder.layer[0].attention.output.dense.weight.shape == (32, 32)


def test_rotary_positions_are_refused():
    model = transformers.LlamaModel(transformers.LlamaConfig(vocab_size=50, **SIZES))
    with pytest.raises(ValueError, match="LlamaModel has no attention layer that is known"):
        replace_attention(model, "softmax")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("non_local", "replace_attention: non_local gives 16 channels, the projection after encoder.layer.0"),
        (
            attention("mixed", heads={"gka": 1, "softmax": 1}),
            "replace_attention: mixed has an output projection",
        ),
    ],
)
def test_what_does_not_fit_is_refused(name, message):
    with pytest.raises(ValueError, match=message):
        replace_attention(bert(), name, length=9)


def test_calls_that_a_variant_cannot_answer_are_refused():
    model = replace_attention(bert(is_decoder=True), "softmax").model
    with pytest.raises(ValueError, match="the model keeps a cache of its own; call it with use_cache=False"):
        model(WORDS)
    layer = replace_attention(bert(), "softmax").model.encoder.layer[0].attention.self
    tokens = torch.zeros(1, 2, 32)
    with pytest.raises(ValueError, match="the mask adds numbers to scores, which no variant does"):
        layer(tokens, torch.tensor([[[[0.0, -1.0], [0.0, 0.0]]]]))
    with pytest.raises(ValueError, match="the mask must be a tensor"):
        layer(tokens, "flex")
