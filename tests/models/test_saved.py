"""A swapped model of transformers comes back as it was: from a folder, in another process, with a warning."""

import copy
import os
import subprocess
import sys

import pytest
import torch

from gkalib import attention, replace_attention
from gkalib.kernels import ALiBi, ExpDot, Gaussian, Kerple, Laplace, Matern, RationalQuadratic
from gkalib.models import from_pretrained
from gkalib.normalizers import Simplex, TopK

transformers = pytest.importorskip("transformers", reason="not installed: pip install 'gkalib[models]'")

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
IDS = torch.randint(3, 50, (2, 9), generator=torch.Generator().manual_seed(1))


def llama():
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, vocab_size=50)).eval()


def bert():
    torch.manual_seed(0)
    return transformers.BertModel(transformers.BertConfig(**SIZES, vocab_size=50)).eval()


@torch.no_grad()
def run(model):
    return model(IDS)[0]


SWAPS = {
    "a number": (llama, Gaussian(0.5)),
    "a number a head": (llama, Gaussian(torch.tensor([0.5, 1.0, 2.0, 4.0]))),
    "a sum": (llama, ExpDot() * Laplace(torch.full((4,), 2.0), learn=True) + Matern(2.0, nu=2.5)),
    "one a layer": (llama, [RationalQuadratic(1.0, alpha=2.0), attention("krause", top_k=3)]),
    "of the lag": (llama, ExpDot() * ALiBi(4)),
    "a normalizer": (llama, TopK(2)),
    "a variant": (bert, "linformer"),
    "simplex": (bert, Simplex()),
    "two": (bert, ["gka", "rbf"]),
}


@pytest.mark.parametrize(("build", "given"), SWAPS.values(), ids=SWAPS)
def test_what_is_saved_comes_back_and_again(build, given, tmp_path):
    model = build()
    replace_attention(model, given, length=9)
    with torch.no_grad():
        for parameter in model.parameters():  # as if it had learned
            parameter.add_(0.1 * torch.randn_like(parameter))
    for number in range(2):
        folder = tmp_path / str(number)
        model.save_pretrained(folder)
        assert '"quant_method": "gkalib"' in (folder / "config.json").read_text()
        again, told = type(model).from_pretrained(folder, output_loading_info=True)
        assert not told["missing_keys"] and not told["unexpected_keys"]
        assert torch.equal(run(again), run(model))
        for each in (model, again):  # which is not quantized, and casts and trains
            assert not hasattr(each.config, "quantization_config") and not getattr(
                each, "is_quantized", False
            )
        model = again


def test_each_model_in_a_model_is_saved_with_its_own_layers(tmp_path):
    config = transformers.CLIPConfig(
        text_config={**SIZES, "vocab_size": 50, "max_position_embeddings": 20},
        vision_config={**SIZES, "image_size": 16, "patch_size": 4},
    )
    model = transformers.CLIPModel(config).eval()
    replace_attention(model, ["gka", "rbf", Gaussian(0.5), ExpDot()])
    model.vision_model.save_pretrained(tmp_path)
    again = type(model.vision_model).from_pretrained(tmp_path)
    kinds = [type(layer.self_attn).__name__ for layer in model.vision_model.encoder.layers]
    assert [type(layer.self_attn).__name__ for layer in again.encoder.layers] == kinds
    pixels = torch.randn(1, 3, 16, 16)
    assert torch.equal(again(pixels)[0], model.vision_model(pixels)[0])


@pytest.mark.slow
def test_another_process_finds_our_attention(tmp_path):
    model = llama()
    replace_attention(model, Gaussian(0.5, learn=True))
    torch.save(model, tmp_path / "whole.pt")
    model.save_pretrained(tmp_path)
    torch.save((IDS, run(model)), tmp_path / "expected.pt")
    program = f"""if True:
        import sys, torch
        from gkalib.models import from_pretrained
        assert "transformers" not in sys.modules
        whole = torch.load({str(tmp_path / "whole.pt")!r}, weights_only=False)
        from transformers import AutoModelForCausalLM
        again = from_pretrained(AutoModelForCausalLM, {str(tmp_path)!r})
        ids, expected = torch.load({str(tmp_path / "expected.pt")!r})
        for each in (whole, again):
            torch.testing.assert_close(each(ids).logits, expected)"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("given", [Kerple(4) * ExpDot(), Gaussian(0.5)], ids=["no name for it", "assigned"])
def test_what_a_configuration_cannot_say_is_said_when_it_is_saved(given, tmp_path):
    model = llama()
    replace_attention(model, given)
    reason = r"config.json cannot say Kerple\(num_heads=4\)"
    if isinstance(given, Gaussian):
        reason = "slots were assigned after the swap"
        model.model.layers[1].self_attn.smoother.kernel = Laplace(1.0)
    with pytest.warns(UserWarning, match=f"save_pretrained: {reason}.* gives the model its own attention"):
        model.save_pretrained(tmp_path)
    assert "gkalib" not in (tmp_path / "config.json").read_text()


def test_a_swap_is_not_undone_without_a_word():
    model = llama()
    own = run(model)
    replace_attention(model, Gaussian(0.5))
    model = copy.deepcopy(model)
    swapped = run(model)
    for each in (model, model.model):
        with pytest.warns(UserWarning, match="set_attn_implementation: 'sdpa' computes the model's own"):
            each.set_attn_implementation("sdpa")
        torch.testing.assert_close(run(model), own)
        each.set_attn_implementation("gkalib")
        assert torch.equal(run(model), swapped)


def test_a_model_that_was_not_swapped_is_loaded_as_ever(tmp_path):
    model = llama()
    model.save_pretrained(tmp_path)
    assert torch.equal(run(from_pretrained(type(model), tmp_path)), run(model))
