"""The vision transformer: DeiT's parameters, every variant by name, sizes that fit."""

import pytest
import timm
import torch
from safetensors.torch import load_model, save_model

from gkalib.layers import attention
from gkalib.models import ViTConfig, vit
from tests.tolerance import equal
from tests.variants import VARIANTS, only_causal

SMALL = ViTConfig(
    image_size=8, patch_size=2, channels=1, dim=32, depth=2, num_heads=4, num_classes=10, class_token=False
)


def images(batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, 1, 8, 8)


def test_with_softmax_it_is_timms():
    theirs = timm.create_model("deit_tiny_patch16_224", img_size=32, depth=2, num_classes=7).double().eval()
    ours = vit("tiny", image_size=32, depth=2, num_classes=7).double().eval()
    state = {}
    for name, tensor in theirs.state_dict().items():
        if ".attn.qkv." in name:
            for part, piece in zip(("query", "key", "value"), tensor.chunk(3), strict=True):
                state[name.replace("qkv", part)] = piece
        else:
            state[name.replace("cls_token", "class_token").replace("pos_embed", "position")] = tensor
    ours.load_state_dict(state)
    x = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    equal(ours(x), theirs(x))


@pytest.mark.parametrize("name", [name for name in sorted(VARIANTS) if not only_causal(name)])
def test_every_variant_drops_in(name, tmp_path):
    layer = attention(name, **VARIANTS[name].options)
    model = vit(SMALL, attention=layer)
    x = images()
    model(x).logsumexp(-1).sum().backward()
    assert all(parameter.grad is not None for parameter in model.head.parameters())
    save_model(model, str(tmp_path / "model.safetensors"))
    again = vit(SMALL, attention=layer)
    load_model(again, str(tmp_path / "model.safetensors"))
    assert torch.equal(again.eval()(x), model.eval()(x))


@pytest.mark.parametrize("positions", ["learned", "rope", "susie", "none"])
@pytest.mark.parametrize("class_token, registers", [(True, 0), (True, 3), (False, 2)])
def test_tokens_before_the_patches(positions, class_token, registers):
    model = vit(SMALL, positions=positions, class_token=class_token, registers=registers).eval()
    assert model.config.length == 16 + class_token + registers
    assert model(images()).shape == (2, 10)
    assert model.features(images()).shape == (2, 32)


def test_without_positions_the_order_of_the_patches_is_lost():
    model, x = vit(SMALL, positions="none").double().eval(), images().double()
    rows = x.reshape(2, 1, 4, 2, 8)[:, :, [2, 0, 3, 1]].reshape(2, 1, 8, 8)
    equal(model(rows), model(x))
    placed = vit(SMALL).double().eval()
    assert (placed(rows) - placed(x)).abs().max() > 1e-6


def test_drop_path_rises_with_depth():
    model = vit(SMALL, depth=3, drop_path=0.2)
    rates = [getattr(block.drop_path1, "drop_prob", 0.0) for block in model.blocks]
    assert rates == pytest.approx([0.0, 0.1, 0.2])


@pytest.mark.parametrize(
    "size, changes, message",
    [
        ("huge", {}, "vit: no size 'huge'. Known: tiny, small, base"),
        ("tiny", {"width": 3}, "vit: no setting 'width'. Known: image_size"),
        ("tiny", {"patch_size": 15}, "vit: patches of 15 pixels do not tile an image of 224"),
        ("tiny", {"depth": 0}, "vit: depth must be at least 1, not 0"),
        ("tiny", {"positions": "sine"}, "vit: no positions 'sine'. Known: learned, rope, susie, none"),
        ("tiny", {"registers": -1}, "vit: registers must be at least 0, not -1"),
        ("tiny", {"num_heads": 5}, "softmax: num_heads 5 does not divide dim 192"),
    ],
)
def test_errors(size, changes, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        vit(size, **changes)
