"""Counts against formulas of the papers, and against what the parts come to."""

import pytest
import torch

from gkalib.layers import attention, variants
from gkalib.models import count, gpt, vit


def empty(build, *shape: int, dtype=torch.float32):
    with torch.device("meta"):
        return count(build(), torch.empty(shape, dtype=dtype))


@pytest.mark.parametrize("size, dim", [("tiny", 192), ("small", 384), ("base", 768)])
@pytest.mark.parametrize("name, projections", [("softmax", 4), ("vlt", 3), ("gka", 1)])
def test_operations_are_the_formula(size, dim, name, projections):
    counted = empty(lambda: vit(size, attention=name), 1, 3, 224, 224)
    block = (projections + 8) * 197 * dim**2 + 2 * 197**2 * dim
    assert counted.flops == 2 * (12 * block + 196 * 768 * dim + 1000 * dim)
    assert counted.mlp_parameters == 12 * (8 * dim**2 + 5 * dim)
    assert counted.mebibytes == 4 * counted.parameters / 2**20
    assert counted.embedding_parameters == 768 * dim + dim + dim + 197 * dim


def test_nanochat_per_token():
    ids = (1, 2048)
    baseline = empty(lambda: gpt("nanochat-d20"), *ids, dtype=torch.long)
    assert (baseline.parameters, baseline.flops_per_token) == (896_535_720, 3_004_189_440)
    gka = empty(lambda: gpt("nanochat-d20-gka", attention="gka"), *ids, dtype=torch.long)
    assert (gka.parameters, gka.flops_per_token) == (378_798_320, 2_414_346_240)


CAUSAL = [name for name in variants() if name != "mixed" and getattr(attention(name), "causal", True)]


@pytest.mark.parametrize("name", CAUSAL)
def test_without_storage_a_variant_counts_the_same(name):
    def build():
        config = {"vocab_size": 50, "context": 32, "dim": 16, "depth": 1, "num_heads": 2}
        return gpt("gpa-dickens", attention=name, **config)

    assert empty(build, 1, 32, dtype=torch.long) == count(build(), torch.zeros(1, 32, dtype=torch.long))


def test_a_window_is_counted_by_what_the_last_token_sees():
    config = {"vocab_size": 50, "context": 32, "dim": 16, "depth": 2, "num_heads": 2}
    costs = {
        short: empty(
            lambda short=short: gpt("gpa-dickens", windows="S", short=short, **config),
            1,
            32,
            dtype=torch.long,
        )
        for short in (4, 8)
    }
    # four keys more in the first layer: a product and a value of 16 numbers each, three passes
    assert costs[8].flops_per_token - costs[4].flops_per_token == 3 * 2 * 4 * (16 + 16)
    assert costs[8].flops == costs[4].flops


def test_linear_attention_is_counted_as_it_is_computed():
    def flops(name: str, side: int) -> int:
        build = lambda: vit("tiny", attention=name, image_size=side, depth=1)  # noqa: E731
        return empty(build, 1, 3, side, side).flops

    def growth(name: str) -> float:  # of what depends on the number of tokens
        return (flops(name, 448) - flops(name, 224)) / (flops(name, 224) - flops(name, 112))

    assert growth("linear") == pytest.approx(4, rel=1e-3) and growth("softmax") > 4.5


def test_a_real_model_is_left_as_it_was():
    model = vit("tiny", image_size=32, depth=1, num_classes=3).train()
    x = torch.randn(2, 3, 32, 32)
    before = model(x)
    counted = count(model, x)
    assert torch.equal(model(x), before) and model.training
    assert model.blocks[0].attn.method == "auto"
    assert counted.parameters == sum(p.numel() for p in model.parameters())
    assert "attention_parameters" in str(counted)


def test_shared_tensors_are_counted_and_stored_once():
    config = {"vocab_size": 50, "context": 8, "dim": 16, "depth": 1, "num_heads": 2, "head_bias": False}
    ids = torch.zeros(1, 8, dtype=torch.long)
    tied, untied = (count(gpt("gpa-dickens", tied=tied, **config), ids) for tied in (True, False))
    assert untied.parameters - tied.parameters == 50 * 16
    assert untied.mebibytes - tied.mebibytes == pytest.approx(4 * 50 * 16 / 2**20)
    assert untied.flops == tied.flops


def test_an_input_is_needed():
    with pytest.raises(ValueError, match=r"^count: an input is needed"):
        count(torch.nn.Linear(2, 2))
