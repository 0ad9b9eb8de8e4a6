"""Kolmogorov–Arnold attention: its weights, what layers share and what it refuses."""

import copy

import pytest
import torch
from safetensors.torch import load_file, load_model, save_model

from gkalib.layers import attention
from gkalib.layers.karat import KolmogorovArnoldAttention
from gkalib.masks import Causal
from gkalib.models import vit
from gkalib.normalizers import PerHead
from tests.tolerance import equal

F64 = torch.float64
LENGTH = 9


def _layer(**options) -> KolmogorovArnoldAttention:
    return KolmogorovArnoldAttention(
        16, 4, **{"length": LENGTH, "rank": 3, "grid": 2, "dtype": F64, **options}
    )


def _tokens() -> torch.Tensor:
    return 3 * torch.randn(2, LENGTH, 16, dtype=F64)


def _universal(**options) -> tuple[KolmogorovArnoldAttention, KolmogorovArnoldAttention]:
    """Two layers around one operator."""
    given = {"length": LENGTH, "rank": 3, "grid": 2, "dtype": F64, **options}
    layer = attention("karat", mode="universal", **given).for_model(16, 4, length=LENGTH)
    return layer(16, 4), layer(16, 4)


def test_universal_layers_share_storage_and_gradients_add_up():
    first, second = _universal()
    operator = first.normalizer
    assert operator is second.normalizer
    x = _tokens()
    second(first(x)).square().sum().backward()
    together = [p.grad.clone() for p in operator.parameters() if p.grad is not None]
    assert len(together) == 3, "coefficients, scale and W; the scale of a zero base does nothing"

    own = [copy.deepcopy(operator), copy.deepcopy(operator)]
    for layer, one in zip((first, second), own, strict=True):
        one.zero_grad()
        layer.normalizer = one
    second(first(x)).square().sum().backward()
    apart = [[p.grad for p in one.parameters() if p.grad is not None] for one in own]
    for total, *parts in zip(together, *apart, strict=True):
        equal(total, sum(parts))


@pytest.mark.parametrize("softmax_heads", [1, 3])
def test_hybrid_heads_are_softmax_attention(softmax_heads):
    layer, x = _layer(softmax_heads=softmax_heads, project_out=False), _tokens()
    softmax = attention("softmax")(16, 4, project_out=False, dtype=F64)
    for name in ("query", "key", "value"):
        getattr(softmax, name).load_state_dict(getattr(layer, name).state_dict())
    width = 4 * softmax_heads
    equal(layer(x)[..., :width], softmax(x)[..., :width])
    assert (layer(x)[..., width:] - softmax(x)[..., width:]).abs().max() > 1e-2
    assert isinstance(layer.normalizer, PerHead)
    assert layer.normalizer.heads == [softmax_heads, 4 - softmax_heads]


def test_universal_hybrid_shares_too():
    first, second = _universal(softmax_heads=1)
    assert first.normalizer.normalizers[1] is second.normalizer.normalizers[1]


def test_projected_rows_are_averages():
    layer, x = _layer(projection="after", project_out=False), _tokens()
    out, values = layer(x), layer.value(x)
    low, high = values.amin(1, keepdim=True), values.amax(1, keepdim=True)
    assert ((out >= low - 1e-12) & (out <= high + 1e-12)).all()


def test_cross_attention_to_the_tokens_it_was_built_for():
    layer = _layer()
    assert layer(torch.randn(2, 5, 16, dtype=F64), context=_tokens()).shape == (2, 5, 16)


def test_a_universal_model_has_one_operator_and_stores_it_once(tmp_path):
    sizes = {"image_size": 8, "patch_size": 4, "dim": 16, "depth": 3, "num_heads": 2, "num_classes": 3}
    model = vit("tiny", attention=attention("karat", mode="universal", rank=2), **sizes)
    assert len({id(block.attn.normalizer) for block in model.blocks}) == 1
    save_model(model, str(tmp_path / "model.safetensors"))
    stored = [name for name in load_file(tmp_path / "model.safetensors") if "coefficients" in name]
    assert len(stored) == 1
    other = vit("tiny", attention=attention("karat", mode="universal", rank=2), **sizes)
    load_model(other, str(tmp_path / "model.safetensors"))
    x = torch.randn(2, 3, 8, 8)
    equal(other(x), model(x))
    assert len({id(block.attn.normalizer) for block in other.blocks}) == 1
    model(torch.randn(2, 3, 8, 8)).square().sum().backward()
    copied = copy.deepcopy(model)
    assert len({id(block.attn.normalizer) for block in copied.blocks}) == 1
    assert copied.blocks[0].attn.normalizer is not model.blocks[0].attn.normalizer


def test_two_models_of_one_class_do_not_share():
    sizes = {"image_size": 8, "patch_size": 4, "dim": 16, "depth": 2, "num_heads": 2, "num_classes": 3}
    universal = attention("karat", mode="universal", rank=2)
    first, second = (vit("tiny", attention=universal, **sizes) for _ in range(2))
    assert first.blocks[0].attn.normalizer is not second.blocks[0].attn.normalizer
    again = vit("tiny", attention=[type(block.attn) for block in first.blocks], **sizes)
    assert again.blocks[0].attn.normalizer is not first.blocks[0].attn.normalizer


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: _layer()(_tokens()[:, 1:]), "karat: was built for 9 tokens, given 8"),
        (
            lambda: _layer()(torch.zeros(2, LENGTH + 1, 16, dtype=F64)),
            "karat: was built for 9 tokens, given 10",
        ),
        (lambda: _layer()(_tokens(), is_causal=True), "karat: cannot be causal: a weight depends on all N"),
        (lambda: _layer()(_tokens(), mask=Causal()), "karat: takes no mask: a weight depends on all N"),
        (lambda: _layer()(_tokens(), torch.ones(9, 9, dtype=torch.bool)), "karat: takes no mask"),
        (lambda: _layer().cache(1, 9), "karat: cannot decode token by token: a weight depends"),
    ],
)
def test_what_it_cannot_compute_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
