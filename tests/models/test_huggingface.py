"""Hugging Face's models: slots between their own projections, variants in their layers' place, refusals."""

import copy
import inspect
import pickle
from itertools import product

import pytest
import torch
from torch import nn

from gkalib import attention, capture_attention, replace_attention
from gkalib.kernels import Dot, ExpDot, Gaussian, LagTable
from gkalib.layers import Smoother
from gkalib.models.huggingface import HiddenStates
from gkalib.normalizers import TopK

transformers = pytest.importorskip("transformers", reason="not installed: pip install 'gkalib[models]'")

SIZES = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48}
WORDS = {"vocab_size": 50, "max_position_embeddings": 64, "pad_token_id": 0}
GROUPED = {**SIZES, **WORDS, "num_key_value_heads": 2}
GPT2 = {"vocab_size": 50, "n_positions": 64, "n_embd": 32, "n_layer": 3, "n_head": 4}
ENDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
SCALED = {**GPT2, **ENDS, "scale_attn_by_inverse_layer_idx": True}
VISION = {**SIZES, "image_size": 16, "patch_size": 4}
CAPPED = {"head_dim": 8, "attn_logit_softcapping": 1.0, "attn_implementation": "eager"}
T5 = {"vocab_size": 50, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}

MODELS = {
    "Llama": ("LlamaForCausalLM", "LlamaConfig", GROUPED),
    "Qwen2": ("Qwen2ForCausalLM", "Qwen2Config", GROUPED),
    "Qwen2, windows": (
        "Qwen2ForCausalLM",
        "Qwen2Config",
        {**GROUPED, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
    ),
    "GPT-2": ("GPT2LMHeadModel", "GPT2Config", GPT2 | ENDS),
    "GPT-2, scales": ("GPT2LMHeadModel", "GPT2Config", SCALED),
    "BERT": ("BertModel", "BertConfig", SIZES | WORDS),
    "BERT, eager": ("BertModel", "BertConfig", SIZES | WORDS | {"attn_implementation": "eager"}),
    "BERT, causal": ("BertLMHeadModel", "BertConfig", SIZES | WORDS | {"is_decoder": True}),
    "ViT": ("ViTModel", "ViTConfig", VISION),
    "CLIP": ("CLIPVisionModel", "CLIPVisionConfig", VISION),
    "T5": ("T5EncoderModel", "T5Config", T5),
    "Gemma 2, capped": ("Gemma2ForCausalLM", "Gemma2Config", GROUPED | CAPPED),
}
DECODERS = ["Llama", "Qwen2, windows", "GPT-2"]

generator = torch.Generator().manual_seed(1)
IDS = torch.randint(3, 50, (2, 9), generator=generator)
PIXELS = torch.randn(2, 3, 16, 16, generator=generator)
LEFT, RIGHT = torch.ones(2, 9, dtype=torch.long), torch.ones(2, 9, dtype=torch.long)
LEFT[1, :3] = 0
RIGHT[1, 6:] = 0


def build(name, **options):
    """A model in small, with matrices large enough for attention to matter."""
    model, config, sizes = MODELS[name]
    torch.manual_seed(0)
    model = getattr(transformers, model)(getattr(transformers, config)(**{**sizes, **options})).eval()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.3)
    return model


def lags():
    """Softmax attention times a free kernel of the lag."""
    table = LagTable(4, 64)
    nn.init.normal_(table.bias)
    return ExpDot() * table


KERNELS = {"ExpDot": ExpDot, "RBF": lambda: Gaussian(2.0), "lags": lags}


def swapped(model, variant, **options):
    return replace_attention(copy.deepcopy(model), variant, **options).model


def smoothers(model):
    return [module for module in model.modules() if isinstance(module, Smoother)]


@torch.no_grad()
def run(model, **given):
    """Logits, or what the last layer gives."""
    if isinstance(model, transformers.ViTModel | transformers.CLIPVisionModel):
        return model(PIXELS, **given).last_hidden_state
    return model(IDS, **given)[0]


def close(actual, expected):
    """Equal up to another library's rounding, float32 through three layers and logits of about ten."""
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=5e-5)


PADDED = [*product((*DECODERS, "BERT, eager"), ["left"]), ("Gemma 2, capped", "right"), ("T5", "right")]


@pytest.mark.parametrize(("name", "padding"), [*product(MODELS, [None]), *PADDED, ("BERT", "right")])
def test_exp_dot_is_the_models_own_attention_and_rbf_is_not(name, padding):
    given = {"attention_mask": {"left": LEFT, "right": RIGHT}[padding]} if padding else {}
    model = build(name)
    real = given["attention_mask"].bool() if padding else ...
    before = run(model, **given)[real]
    swap = replace_attention(model, ExpDot())
    assert swap.model is model and len(swap.layers) == len(smoothers(model)) >= 2
    close(run(model, **given)[real], before)
    rbf = run(swapped(build(name), "rbf"), **given)[real]
    assert rbf.isfinite().all() and (rbf - before).abs().max() > 0.01


def _losses(model, steps=3):
    """Of a model that learns the ids by heart in mixed precision."""
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=3e-3), []
    for _ in range(steps):
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(IDS, labels=IDS, use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", ["Llama", "GPT-2"])
def test_mixed_precision_trains_a_swapped_model_as_its_own(name):
    ungrouped = {"num_key_value_heads": 4} if name == "Llama" else {}  # no sum over a group to be rounded
    model = build(name, **ungrouped)
    softmax, rbf = (swapped(model, variant) for variant in ("softmax", "rbf"))
    own = _losses(model)
    assert _losses(softmax) == own
    assert _losses(rbf)[-1] < own[0]


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_row_is_what_it_is_without_padding(name, kernel):
    model = swapped(build(name), KERNELS[kernel]())
    places = (LEFT.cumsum(-1) - 1).clamp(min=0)
    left = run(model, attention_mask=LEFT, position_ids=places)[1, 3:]
    right = run(model, attention_mask=RIGHT)[1, :6]
    with torch.no_grad():
        close(left, model(IDS[1:, 3:]).logits[0])
        close(right, model(IDS[1:, :6]).logits[0])


CACHED = [*product(("lags", "RBF"), DECODERS, ["dynamic"]), ("lags", "Llama", "static")]


@pytest.mark.parametrize(("kernel", "name", "cache"), [*CACHED, ("ExpDot", "GPT-2", "static")])
def test_generate_with_a_cache_agrees_with_none(name, kernel, cache):
    model = swapped(build(name), KERNELS[kernel]())
    given = {
        "attention_mask": LEFT,
        "max_new_tokens": 8,
        "min_new_tokens": 8,
        "do_sample": False,
        "output_logits": True,
        "return_dict_in_generate": True,
    }
    static = {"cache_implementation": "static", "disable_compile": True} if cache == "static" else {}
    without = model.generate(IDS, use_cache=False, **given)
    cached = model.generate(IDS, use_cache=True, **given, **static)
    assert torch.equal(cached.sequences, without.sequences)
    for step, expected in zip(cached.logits, without.logits, strict=True):
        close(step, expected)


@pytest.mark.parametrize("variant", ["krause", "performer", "rbf", "qk_norm", "rpe"])
def test_variants_decode_between_the_projections_of_llama(variant):
    model = swapped(
        build("Llama"), attention("krause", top_k=3, window=4) if variant == "krause" else variant, length=24
    )
    with torch.no_grad():
        whole = model(IDS, attention_mask=LEFT).logits
        cache = model(IDS[:, :6], attention_mask=LEFT[:, :6], use_cache=True).past_key_values
        name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
        rest = model(IDS[:, 6:], attention_mask=LEFT, **{name: cache}).logits
    close(rest, whole[:, 6:])


def test_each_layer_has_its_own_kernel_that_learns_and_is_saved():
    model = build("Llama")
    swap = replace_attention(model, Gaussian(2.0, learn=True))
    names = [f"model.layers.{layer}.self_attn.smoother.kernel.log_sigma" for layer in range(3)]
    assert swap.fresh == names and not swap.dropped
    assert "model.layers.0.self_attn.k_proj.weight" in swap.copied
    model(IDS).logits.square().mean().backward()
    parameters = dict(model.named_parameters())
    gradients = [parameters[name].grad.item() for name in names]
    assert all(gradients) and len(set(gradients)) == 3
    with torch.no_grad():
        parameters[names[1]].add_(0.5)
    again = swapped(build("Llama"), Gaussian(2.0, learn=True))
    again.load_state_dict(model.state_dict())
    assert torch.equal(run(again), run(model))
    assert torch.equal(run(pickle.loads(pickle.dumps(model))), run(model))


def test_slots_can_be_assigned():
    model = swapped(build("Llama"), ExpDot())
    before = run(model)
    for layer in model.model.layers:
        layer.self_attn.smoother.normalizer = TopK(2)
    assert (run(model) - before).abs().max() > 0.01
    close(run(model), run(swapped(build("Llama"), TopK(2))))
    with pytest.raises(ValueError, match="kernel must be a gkalib kernel"):
        model.model.layers[0].self_attn.smoother.kernel = "laplace"


def test_a_list_gives_each_layer_its_own():
    swap = replace_attention(build("BERT"), [ExpDot(), "gka", attention("krause", top_k=2)])
    path = "encoder.layer.{}.attention.self"
    assert list(swap.layers) == [path.format(layer) for layer in range(3)]
    assert list(swap.layers.values()) == ["softmax with ExpDot()", "gka", "krause"]
    assert swap.dropped == [
        f"{path.format(1)}.{name}.{kind}" for name in ("query", "key", "value") for kind in ("weight", "bias")
    ]
    assert run(swap.model, attention_mask=RIGHT).isfinite().all()


def test_weights_are_given_and_captured():
    model = swapped(build("Qwen2"), Gaussian(2.0))
    with torch.no_grad():
        given = model(IDS, attention_mask=LEFT, output_attentions=True).attentions
    seen = capture_attention(model, IDS, attention_mask=LEFT)
    assert len(seen) == len(given) == 3
    for layer, weights in zip(seen, given, strict=True):
        close(layer.weights, weights)
        assert not weights[0].triu(1).any() and not weights[1, :, :, :3].any()


def test_dropout_is_the_models():
    model = swapped(build("Llama", attention_dropout=0.5), ExpDot())
    close(run(model), run(build("Llama")))
    model.train()
    assert (run(model) - run(model)).abs().max() > 0.01


def test_cross_attention_stays_what_it_is():
    torch.manual_seed(0)
    model = transformers.T5Model(transformers.T5Config(**T5, decoder_start_token_id=0)).eval()
    with torch.no_grad():
        before = model(IDS, attention_mask=RIGHT, decoder_input_ids=IDS).last_hidden_state
        swap = replace_attention(model, ExpDot())
        after = model(IDS, attention_mask=RIGHT, decoder_input_ids=IDS).last_hidden_state
    assert len(swap.layers) == 4
    assert swap.left == {
        f"decoder.block.{block}.layer.1.EncDecAttention": "is cross-attention" for block in (0, 1)
    }
    close(after, before)


@pytest.mark.parametrize("name", ["BERT", "BERT, eager", "BERT, causal", "ViT", "CLIP"])
@pytest.mark.parametrize("variant", ["gka", "vlt", "l2"])
def test_a_variant_with_other_projections_stands_in_the_layers_place(name, variant):
    model = build(name)
    given = {} if name in ("ViT", "CLIP") else {"attention_mask": RIGHT}
    if name == "BERT, causal":
        given["use_cache"] = False
    before = run(model, **given)
    swap = replace_attention(model, variant)
    after = run(swap.model, **given)
    assert after.isfinite().all() and (after - before).abs().max() > 0.01
    assert any("value.weight" in name for name in swap.dropped) or variant == "l2"
    assert all(smoother.name() == variant for smoother in smoothers(model))
    if given:
        with torch.no_grad():
            row = model(IDS[1:, :6], **{key: value for key, value in given.items() if key == "use_cache"})[0]
        close(after[1, :6], row[0])
    if name == "BERT, causal":
        with pytest.raises(ValueError, match="keeps a cache of its own; call it with use_cache=False"):
            model(IDS)


@pytest.mark.parametrize("name", ["past_key_values", "cache"])
def test_a_layer_with_other_projections_takes_no_cache(name):
    layer = HiddenStates(attention("gka")(16, num_heads=2), causal=True)
    with pytest.raises(ValueError, match="keeps a cache of its own; call it with use_cache=False"):
        layer(torch.zeros(1, 3, 16), **{name: object()})


@pytest.mark.parametrize(
    ("name", "variant", "message"),
    [
        (
            "Llama",
            "gka",
            r"model.layers.0.self_attn does more than project and attend .* These smooth between its own",
        ),
        (
            "Llama",
            attention("rbf", xsa=True),
            "xsa takes out a token's own value, which a cache of model.lay",
        ),
        (
            "Llama",
            "linformer",
            "model.layers.0.self_attn is causal, linformer cannot be: every new key is made of",
        ),
        ("BERT", "non_local", "non_local gives 16 channels, the projection after encoder.layer.0"),
        (
            "BERT",
            attention("mixed", heads={"gka": 1, "softmax": 1}),
            "mixed has an output projection, encoder",
        ),
        (
            "ViT",
            attention("rbf", position="rope"),
            "rbf has position=, but the model places its tokens itself",
        ),
        ("BERT", Gaussian(torch.ones(3)), "Gaussian has parameters for 3 heads, the layer has 4"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_and_the_model_stays_as_it_was(name, variant, message):
    model = build(name)
    before = run(model)
    with pytest.raises(ValueError, match=message):
        replace_attention(model, variant, length=9)
    assert not smoothers(model) and torch.equal(run(model), before)


def gpt_oss():
    return transformers.GptOssModel(
        transformers.GptOssConfig(**GROUPED, head_dim=8, num_local_experts=4, num_experts_per_tok=2)
    )


def deberta():
    return transformers.DebertaV2Model(transformers.DebertaV2Config(**SIZES, vocab_size=50))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            gpt_oss,
            r"layers.0.self_attn is a GptOssAttention, which adds a learned attention sink to each row",
        ),
        (
            deberta,
            "is a Disentangled.*Attention, which computes its attention by itself, not through transformers'",
        ),
    ],
    ids=["sinks", "no interface"],
)
def test_attention_that_no_slot_describes_gets_an_answer(build, message):
    with pytest.raises(ValueError, match=f"replace_attention: .*{message}"):
        replace_attention(build(), ExpDot())


def test_what_a_layer_asks_of_the_interface_alone_is_refused_there():
    model = swapped(build("Llama"), ExpDot())
    with pytest.raises(ValueError, match=r"LlamaAttention adds a learned attention sink to each row"):
        model(IDS, s_aux=torch.zeros(4))


def test_a_kernel_that_may_be_negative_has_no_score_to_cap():
    with pytest.raises(ValueError, match="caps its scores"):
        run(swapped(build("Gemma 2, capped"), Dot()))


def test_a_mask_of_numbers_is_added_to_the_scores():
    model, least = build("BERT"), torch.finfo(torch.float32).min
    numbers = torch.randn(2, 1, 9, 9).masked_fill(RIGHT[:, None, None] == 0, least)
    before = run(model, attention_mask=numbers)
    close(run(swapped(model, ExpDot()), attention_mask=numbers)[RIGHT.bool()], before[RIGHT.bool()])


def test_lags_are_differences_of_the_positions_given():
    model = swapped(build("Llama"), lags())
    places = torch.arange(9)[None]
    close(run(model, position_ids=places), run(model))
    assert (run(model, position_ids=2 * places) - run(model)).abs().max() > 0.01
