"""timm's models: softmax changes nothing, and attention that is not plain gets an answer."""

import copy
import pickle
import subprocess
import sys

import pytest
import timm
import torch
from torch import nn

from gkalib.kernels import ExpDot, Gaussian
from gkalib.layers import Smoother, attention
from gkalib.models import replace_attention, vit
from gkalib.normalizers import RowSum


def timm_vit(**options):
    torch.manual_seed(0)
    options = {"img_size": 32, "depth": 3, "num_classes": 7} | options
    return timm.create_model("vit_tiny_patch16_224", **options).eval()


def smoothers(model):
    return [module for module in model.modules() if isinstance(module, Smoother)]


IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    "options",
    [{}, {"qk_norm": True}, {"qkv_bias": False, "proj_bias": False}],
    ids=["plain", "query and key normalized", "no biases"],
)
@torch.no_grad()
def test_softmax_changes_nothing(options):
    model = timm_vit(**options)
    before = model(IMAGES)
    swap = replace_attention(model, "softmax")
    assert swap.model is model and len(smoothers(model)) == 3
    assert swap.layers == {f"blocks.{block}.attn": "softmax" for block in range(3)}
    assert not swap.fresh and not swap.dropped and not swap.left
    assert set(swap.copied) == {name for name, _ in model.named_parameters() if ".attn." in name}
    torch.testing.assert_close(model(IMAGES), before, rtol=1e-4, atol=2e-6)  # another library's rounding
    assert not any(module.training for module in model.modules())


@pytest.mark.parametrize("name", ["rbf", "gka", "krause"])
def test_another_variant_changes_the_output_and_learns(name):
    model = timm_vit()
    before = model(IMAGES).detach()
    after = replace_attention(model, name).model(IMAGES)
    assert after.isfinite().all()
    assert (after - before).abs().max() > 1e-4
    after.square().mean().backward()
    for layer in smoothers(model):
        assert layer.name() == name
        assert all(parameter.grad.abs().max() > 0 for parameter in layer.parameters())


def test_weights_are_copied_where_shapes_agree_and_the_swap_says_which():
    model = timm_vit()
    old = copy.deepcopy(model)
    swap = replace_attention(model, ["rbf", "gka", "non_local"])
    rbf, gka, non_local = smoothers(model)
    assert torch.equal(rbf.key.weight, old.blocks[0].attn.qkv.weight.chunk(3)[1])
    assert torch.equal(rbf.value.bias, old.blocks[0].attn.qkv.bias.chunk(3)[2])
    assert torch.equal(gka.proj.weight, old.blocks[1].attn.proj.weight)
    assert torch.equal(gka.proj.bias, old.blocks[1].attn.proj.bias)
    # Half as wide inside: nothing fits, and it starts as the identity, bias included.
    assert not non_local.proj.weight.any() and not non_local.proj.bias.any()
    assert "blocks.0.attn.value.bias" in swap.copied and "blocks.1.attn.proj.weight" in swap.copied
    assert [name for name in swap.dropped if "blocks.1." in name and "weight" in name] == [
        f"blocks.1.attn.{name}.weight" for name in ("query", "key", "value")
    ]
    assert "blocks.2.attn.proj.weight" in swap.fresh and not any("blocks.2." in name for name in swap.copied)
    ours = {name for name, _ in model.named_parameters() if ".attn." in name}
    assert set(swap.copied) | set(swap.fresh) == ours and not set(swap.copied) & set(swap.fresh)


def test_a_swap_is_printed_layer_by_layer_where_they_differ():
    printed = str(replace_attention(timm_vit(), ["softmax", "softmax", "gka"])).splitlines()
    assert printed[0] == "blocks.0-1.attn: softmax"
    assert printed[1].startswith("  copied   ") and "value.bias" in printed[1]
    assert printed[2:5] == ["  fresh    none", "  dropped  none", "blocks.2.attn: gka"]
    assert printed[6].startswith("  fresh    ") and "sigma" in printed[6]
    assert printed[7].startswith("  dropped  query.weight, key.weight, value.weight")


def test_variants_built_for_a_number_of_tokens_are_told_it():
    with pytest.raises(
        ValueError, match="replace_attention: karat is built for a number of tokens; give leng"
    ):
        replace_attention(timm_vit(), "karat")
    swap = replace_attention(timm_vit(), attention("karat", rank=3), length=5)
    assert swap.model(IMAGES).isfinite().all()


ROTARY = {  # fused and separate projections, gates of registers, rotations that are learned
    "eva02_tiny_patch14_224": {"img_size": 28},
    "eva02_base_patch14_224": {"img_size": 28, "embed_dim": 96, "num_heads": 3},
    "vit_small_patch16_dinov3": {},
    "vit_small_patch16_rope_mixed_224": {},
}


def rotary(name):
    torch.manual_seed(0)
    options = {"img_size": 32, "depth": 2, "num_classes": 7} | ROTARY[name]
    model = timm.create_model(name, **options).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.1 if parameter.ndim > 1 else 0.5)  # gammas start at zero or near
    return model, torch.randn(2, 3, options["img_size"], options["img_size"])


@pytest.mark.parametrize("name", ROTARY)
def test_a_rotary_layer_keeps_all_but_its_attention(name):
    model, images = rotary(name)
    before, learned = model(images), set(model.state_dict())
    swap = replace_attention(model, "softmax")
    assert swap.layers == {f"blocks.{block}.attn": "softmax" for block in range(2)}
    assert not swap.left and not swap.fresh and set(model.state_dict()) == learned
    for same in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.testing.assert_close(same(images), before, rtol=1e-4, atol=2e-6)
    model = rotary(name)[0]
    swap = replace_attention(model, Gaussian(2.0, learn=True))
    after = model(images)
    assert (after - before).abs().max() > 1e-3
    after.square().mean().backward()
    assert all(model.get_parameter(name).grad.abs().max() > 0 for name in swap.fresh) and swap.fresh


COMPILED = """
import timm, torch
from gkalib import replace_attention
model = timm.create_model("eva02_tiny_patch14_224", img_size=28, depth=2).eval()
images = torch.randn(2, 3, 28, 28)
before = model(images)
compiled = torch.compile(replace_attention(model, "softmax").model, backend="aot_eager", fullgraph=True)
torch.testing.assert_close(compiled(images), before, rtol=1e-4, atol=2e-6)
"""


@pytest.mark.slow
def test_a_rotary_layer_is_compiled_whole():
    """In a process without shape checks."""
    subprocess.run([sys.executable, "-c", COMPILED], check=True)


def test_a_rotary_layer_takes_a_mask_and_drops_weights_as_before():
    layer = rotary("eva02_tiny_patch14_224")[0].blocks[0].attn
    tokens, mask = torch.randn(2, 5, 192), torch.ones(5, 5, dtype=torch.bool).tril()
    options = [{"attn_mask": mask}, {"is_causal": True}, {"attn_mask": torch.randn(2, 3, 5, 5)}]
    before = [layer(tokens, **given) for given in options]
    model = replace_attention(nn.Sequential(layer), ExpDot()).model
    for given, wanted in zip(options, before, strict=True):
        torch.testing.assert_close(model[0](tokens, **given), wanted, rtol=1e-4, atol=2e-6)
    model[0].attn_drop.p = 0.5
    assert not torch.equal(model.train()[0](tokens), model[0](tokens))


def test_a_rotary_layer_has_its_own_projections():
    with pytest.raises(ValueError, match=r"blocks.0.attn does more than project and attend .*so gka, which"):
        replace_attention(rotary("eva02_tiny_patch14_224")[0], "gka")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "beit_base_patch16_224",
            "blocks.0.attn is a timm.models.beit.Attention, which adds a bias of relative",
        ),
        (
            "swin_tiny_patch4_window7_224",
            "layers.0.blocks.0.attn is a .*WindowAttention, which adds a bias of",
        ),
        ("xcit_nano_12_p8_224", "blocks.0.attn is a .*XCA, which is no plain attention of one sequence"),
    ],
)
def test_attention_that_is_not_plain_gets_an_answer(name, message):
    with torch.device("meta"):
        model = timm.create_model(name)
    with pytest.raises(
        ValueError, match=rf"replace_attention: {message}.*A variant can stand for timm.layers.At"
    ):
        replace_attention(model, "softmax")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: timm_vit(scale_attn_norm=True),
            "replace_attention: blocks.0.attn has a norm of its output, which no variant has",
        ),
        (
            lambda: vit("tiny", depth=1, image_size=32),
            "replace_attention: blocks.0.attn is a variant already",
        ),
        (lambda: nn.Linear(3, 3), "replace_attention: Linear has no attention layer that is known"),
        (lambda: "vit_tiny", "replace_attention: model must be a module, not 'vit_tiny'"),
    ],
    ids=["a norm inside", "ours", "no attention", "a name"],
)
def test_what_is_not_known_is_refused(build, message, as_a_user):
    with pytest.raises(ValueError, match=message):
        replace_attention(build(), "softmax")


def test_an_unknown_variant_leaves_the_model_as_it_was(as_a_user):
    model = timm_vit()
    with pytest.raises(ValueError, match="attention: no variant 'softmaks'"):
        replace_attention(model, "softmaks")
    for wrong, said in ((RowSum, "<class .*RowSum'>"), (3, "3")):
        with pytest.raises(ValueError, match=rf"^replace_attention: attention must be .*, not {said}$"):
            replace_attention(model, wrong)
    assert not smoothers(model)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_what_was_frozen_stays_frozen_and_the_rest_learns(mode):
    model = timm_vit()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("qkv" not in name)
    with mode():
        swap = replace_attention(model, Gaussian(2.0, learn=True))
    learns = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    assert [name for name in swap.copied if learns[name]] == [n for n in swap.copied if ".proj." in n]
    assert len(swap.fresh) == 3 and all(learns[name] for name in swap.fresh)
    model(IMAGES).square().mean().backward()


@pytest.mark.parametrize("given", ["non_local", "vlt", Gaussian(2 * torch.ones(3))], ids=str)
def test_a_model_without_memory_is_swapped_and_filled(given):
    model = timm_vit()
    with torch.device("meta"):
        empty = timm_vit()
    swaps = [replace_attention(each, given) for each in (model, empty)]
    assert swaps[0].copied == swaps[1].copied and swaps[0].fresh == swaps[1].fresh
    assert all(parameter.is_meta for parameter in empty.parameters())
    empty.load_state_dict(model.state_dict(), assign=True)
    assert torch.equal(empty(IMAGES), model(IMAGES))


def test_dropout_of_weights_is_carried_over():
    model = replace_attention(timm_vit(attn_drop_rate=0.5), RowSum()).model
    torch.testing.assert_close(model(IMAGES), timm_vit()(IMAGES), rtol=1e-4, atol=2e-6)
    model.train()
    assert (model(IMAGES) - model(IMAGES)).abs().max() > 1e-3


@pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec")  # inside PyTorch
@pytest.mark.parametrize("name", ["rbf", "gka"])
@pytest.mark.slow
def test_a_swapped_model_is_exported_as_onnx_does_it(name):
    model = replace_attention(timm_vit(depth=1), name).model
    table = torch.export.default_decompositions()
    del table[torch.ops.aten.scaled_dot_product_attention.default]  # ONNX has an operator for it
    program = torch.export.export(model, (IMAGES,)).run_decompositions(table)
    torch.testing.assert_close(program.module()(IMAGES), model(IMAGES), rtol=1e-4, atol=2e-6)


def test_pooling_by_attention_stays_what_it_is():
    model = timm.create_model("naflexvit_base_patch16_siglip", embed_dim=32, num_heads=4, depth=2)
    swap = replace_attention(model, "rbf")
    assert list(swap.layers) == ["blocks.0.attn", "blocks.1.attn"] and list(swap.left) == ["attn_pool"]
    assert "attn_pool: left as it is, since it is a timm.layers.attention_pool.Attention" in str(swap)


def test_a_layer_with_a_forward_of_its_own_is_another_layer():
    class Louder(timm.layers.Attention):
        def forward(self, x, attn_mask=None, is_causal=False):
            return 2 * super().forward(x, attn_mask, is_causal)

    with pytest.raises(ValueError, match="is a Louder, whose forward is not timm"):
        replace_attention(timm_vit(attn_layer=Louder), "softmax")


def test_a_bias_is_copied_with_its_matrix_or_not_at_all():
    swap = replace_attention(timm_vit(), attention("softmax", head_dim=4))
    assert not swap.copied and "blocks.0.attn.proj.bias" in swap.fresh
