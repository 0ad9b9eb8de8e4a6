"""PyTorch's own attention: softmax answers as it does, weights included, and no fast path goes past."""

import copy
import warnings

import pytest
import torch
from torch import nn

from gkalib.layers import Smoother
from gkalib.models import replace_attention
from gkalib.models.multihead import Multihead

TOKENS = torch.randn(2, 7, 32, generator=torch.Generator().manual_seed(1))
MEMORY = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(2))
PADDED = torch.arange(7) >= torch.tensor([[7], [5]])
CAUSAL = nn.Transformer.generate_square_subsequent_mask(7)
PER_HEAD = torch.rand(2 * 4, 7, 7, generator=torch.Generator().manual_seed(3)) < 0.3


def multihead(**options):
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(32, 4, **({"batch_first": True} | options)).eval()
    if layer.in_proj_bias is not None:  # they start at zero, which would hide that one is lost
        nn.init.normal_(layer.in_proj_bias)
        nn.init.normal_(layer.out_proj.bias)
    return layer


def swapped(layer, variant="softmax"):
    return replace_attention(copy.deepcopy(layer), variant).model


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=2e-6)  # another library's rounding


CALLS = {
    "plain": {},
    "padded": {"key_padding_mask": PADDED},
    "numbers": {"attn_mask": CAUSAL},
    "pairs": {"attn_mask": CAUSAL < 0},
    "a head's own": {"attn_mask": PER_HEAD},
    "both": {"attn_mask": CAUSAL < 0, "key_padding_mask": PADDED},
    "the causal flag": {"attn_mask": CAUSAL, "is_causal": True},
    "each head's weights": {"average_attn_weights": False},
}


@pytest.mark.parametrize("given", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(
    ("bias", "batch_first"), [(True, True), (False, False)], ids=["batch first", "no biases"]
)
def test_softmax_answers_as_the_layer_did(given, bias, batch_first):
    layer = multihead(bias=bias, batch_first=batch_first)
    x = TOKENS if batch_first else TOKENS.transpose(0, 1)
    for out, expected in zip(swapped(layer)(x, x, x, **given), layer(x, x, x, **given), strict=True):
        close(out, expected)


@pytest.mark.parametrize(
    ("shape", "padded", "need_weights"),
    [
        ((7, 7), None, True),
        ((7, 7), "numbers", False),
        ((8, 7, 7), "booleans", True),
        ((8, 7, 7), "numbers", True),
        ((7, 5), None, False),
        ((7, 5), "booleans", False),
    ],
)
def test_a_mask_that_adds_numbers_answers_and_learns_as_in_the_layer(shape, padded, need_weights):
    layer = multihead().double()
    ours = swapped(layer)
    generator = torch.Generator().manual_seed(4)
    bias = torch.randn(shape, generator=generator, dtype=torch.float64)
    hidden = torch.rand(shape, generator=generator) < 0.2
    hidden[..., 0] = False
    bias = bias.masked_fill(hidden, -torch.inf)
    x, context = TOKENS.double(), (TOKENS if shape[-1] == 7 else MEMORY).double()
    given = {"need_weights": need_weights, "average_attn_weights": False}
    if padded is not None:
        padding = PADDED[:, : shape[-1]].clone()
        padding[1, 3] = True
        numbers = torch.zeros(padding.shape, dtype=torch.float64).masked_fill(padding, -torch.inf)
        given["key_padding_mask"] = numbers if padded == "numbers" else padding
    results = []
    for model in (layer, ours):
        leaves = [x.clone().requires_grad_(), context.clone().requires_grad_(), bias.clone().requires_grad_()]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a mask of each kind, which PyTorch then adds
            out, weights = model(leaves[0], leaves[1], leaves[1], attn_mask=leaves[2], **given)
        results.append([out, *torch.autograd.grad(out.square().sum(), leaves)])
        results[-1] += [weights] if need_weights else []
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)  # PyTorch's order of sums


def test_a_mask_of_zeros_that_learns_gets_its_gradient():
    layer = multihead().double()
    ours, x = swapped(layer), TOKENS.double()
    slopes = []
    for model in (layer, ours):
        bias = torch.zeros(7, 7, dtype=torch.float64, requires_grad=True)
        out = model(x, x, x, attn_mask=bias)[0]
        slopes.append(torch.autograd.grad(out.square().sum(), bias)[0])
    torch.testing.assert_close(slopes[1], slopes[0], rtol=1e-10, atol=1e-12)
    assert slopes[1].abs().max() > 1e-6


def test_without_weights_a_batch_or_one_sequence():
    layer, x = multihead(), TOKENS[0]
    out, weights = swapped(layer)(x, x, x, need_weights=False)
    close(out, layer(x, x, x)[0])
    assert weights is None
    out, weights = swapped(layer)(x, x, x)
    assert out.shape == (7, 32) and weights.shape == (7, 7)


def test_queries_of_one_sequence_and_keys_of_another():
    layer = multihead()
    close(swapped(layer)(TOKENS, MEMORY, MEMORY)[0], layer(TOKENS, MEMORY, MEMORY)[0])
    with pytest.raises(ValueError, match="was called with a key that is not the value"):
        swapped(layer)(TOKENS, MEMORY, MEMORY + 1)


def test_equal_views_of_one_tensor_are_that_tensor():
    layer, x = multihead(), TOKENS.clone().requires_grad_()
    for variant in ("softmax", "gka"):
        ours = swapped(layer, variant)
        expected = torch.autograd.grad(ours(x, x, x)[0].square().sum(), x)[0]
        out = ours(x[:], x.view_as(x), x[:])[0]
        assert torch.equal(out, ours(x, x, x)[0])
        close(torch.autograd.grad(out.square().sum(), x)[0], expected)
    assert torch.equal(ours(x.detach(), x.detach(), x.detach())[0], out)
    with torch.inference_mode():
        close(swapped(layer)(x[:], x[:], x[:])[0], layer(x, x, x)[0])
    # The same numbers without the gradient are another tensor, and so is another part of one.
    frozen = x.detach()
    slope = torch.autograd.grad(swapped(layer)(x, frozen, frozen)[0].square().sum(), x)[0]
    close(slope, torch.autograd.grad(layer(x, frozen, frozen)[0].square().sum(), x)[0])
    with pytest.raises(ValueError, match="was called with a key that is not the value"):
        ours(x[:1], x[:1], x[1:])


@pytest.mark.parametrize("variant", ["softmax", "gka"])
def test_a_layer_in_two_places_is_exchanged_in_both(variant):
    model = encoder()
    model.layers[1].self_attn = model.layers[0].self_attn
    before = model(TOKENS)
    swap = replace_attention(model, variant)
    assert model.layers[1].self_attn is model.layers[0].self_attn
    assert isinstance(model.layers[0].self_attn, Multihead) and len(swap.layers) == 1
    if variant == "softmax":
        close(model(TOKENS), before)


def test_parameters_that_two_layers_share_stay_shared():
    model = encoder()
    first, second = (layer.self_attn for layer in model.layers)
    second.in_proj_weight = first.in_proj_weight
    replace_attention(model, "rbf")
    first, second = (layer.self_attn.layer for layer in model.layers)
    assert first.key.weight is second.key.weight and first.value.weight is second.value.weight
    assert first.key.weight is not first.value.weight and first.proj.weight is not second.proj.weight
    assert first.key.bias is not second.key.bias


def test_what_stands_in_place_of_a_layer_itself_is_returned():
    layer = multihead()
    swap = replace_attention(layer, "gka")
    assert isinstance(swap.model, Multihead) and str(swap).startswith("the model itself: gka")
    assert "layer.proj.weight" in swap.copied and "query.weight" in swap.dropped


def encoder(**options):
    torch.manual_seed(0)
    options = {
        "d_model": 32,
        "nhead": 4,
        "dim_feedforward": 48,
        "dropout": 0.0,
        "batch_first": True,
    } | options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that nested tensors are not used
        return nn.TransformerEncoder(nn.TransformerEncoderLayer(**options), 2).eval()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("fast", [True, False], ids=["where the fast path was", "with gradients"])
@pytest.mark.parametrize(
    "options", [{}, {"batch_first": False}, {"norm_first": True}, {"bias": False}], ids=str
)
@pytest.mark.parametrize(
    "given",
    [{}, {"src_key_padding_mask": PADDED}, {"mask": CAUSAL, "is_causal": True}, {"mask": CAUSAL}],
    ids=["plain", "padded", "causal", "masked"],
)
def test_an_encoder_answers_as_it_did_and_calls_our_layer(fast, options, given):
    model = encoder(**options)
    ours = replace_attention(copy.deepcopy(model), "softmax").model
    calls = []
    for layer in ours.layers:
        layer.self_attn.layer.forward = _counted(layer.self_attn.layer.forward, calls)
    x = TOKENS if options.get("batch_first", True) else TOKENS.transpose(0, 1)
    with torch.set_grad_enabled(not fast):
        expected, out = model(x, **given), ours(x, **given)
    real = ~PADDED if options.get("batch_first", True) else ~PADDED.T
    close(out[real], expected[real])
    assert len(calls) == 2


def _counted(forward, calls):
    def counted(*args, **given):
        calls.append(1)
        return forward(*args, **given)

    return counted


def test_an_encoder_built_of_a_swapped_layer():
    layer = replace_attention(nn.TransformerEncoderLayer(32, 4, 48, batch_first=True), "rbf").model
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    with torch.no_grad():
        assert model(TOKENS, src_key_padding_mask=PADDED).isfinite().all()
    assert len([module for module in model.modules() if isinstance(module, Smoother)]) == 2


def test_a_decoder_keeps_its_cross_attention():
    torch.manual_seed(0)
    model = nn.Transformer(32, 4, 1, 1, 48, dropout=0.0, batch_first=True).eval()
    before = model(MEMORY, TOKENS)
    swap = replace_attention(model, "softmax")
    assert list(swap.layers) == ["encoder.layers.0.self_attn", "decoder.layers.0.self_attn"]
    assert swap.left == {"decoder.layers.0.multihead_attn": "is cross-attention"}
    close(model(MEMORY, TOKENS), before)


@pytest.mark.parametrize("name", ["rbf", "gka", "krause"])
def test_another_variant_changes_the_output_and_learns(name):
    model = encoder()
    before = model(TOKENS).detach()
    after = replace_attention(model, name).model(TOKENS, src_key_padding_mask=PADDED)
    assert after.isfinite().all() and (after - before).abs().max() > 1e-4
    after.square().mean().backward()
    for layer in model.layers:
        assert all(parameter.grad.abs().max() > 0 for parameter in layer.self_attn.parameters())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"add_zero_attn": True}, "appends a key and a value of its own"),
        ({"add_bias_kv": True}, "appends a key and a value of its own"),
        ({"kdim": 8}, "has keys and values of width 8 and 32, queries of 32"),
    ],
)
def test_what_no_variant_does_is_refused(options, message):
    with pytest.raises(ValueError, match=f"replace_attention: MultiheadAttention {message}"):
        replace_attention(nn.MultiheadAttention(32, 4, **options), "softmax")


def test_dropout_of_weights_is_carried_over():
    layer = multihead(dropout=0.5)
    model = swapped(layer)
    close(model(TOKENS, TOKENS, TOKENS)[0], layer(TOKENS, TOKENS, TOKENS)[0])
    model.train()
    out, weights = model(TOKENS, TOKENS, TOKENS, average_attn_weights=False)
    assert (weights == 0).any() and (out - layer(TOKENS, TOKENS, TOKENS)[0]).abs().max() > 1e-3


def test_weights_that_are_never_formed_are_not_given():
    model = replace_attention(multihead(), "linformer", length=7).model
    with pytest.raises(ValueError, match="linformer forms no weights; ask for none"):
        model(TOKENS, TOKENS, TOKENS)
    assert model(TOKENS, TOKENS, TOKENS, need_weights=False)[0].isfinite().all()
