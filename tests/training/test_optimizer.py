"""Which parameters decay, which have rates of their own, which go to Muon, and what Muon does to a matrix."""

import pytest
import torch

from gkalib.models import GPTConfig
from gkalib.training.optim import optimizers, set_rates
from tests.training.runs import picture_run, text_run
from tests.variants import LENGTH, VARIANTS

FULL = GPTConfig(
    vocab_size=11,
    context=LENGTH,
    dim=32,
    depth=2,
    num_heads=4,
    positions="susie",
    registers=2,
    value_embeddings=True,
    residual_scales=True,
)


def groups(run) -> dict[str, tuple[type, dict]]:
    """The optimizer and the group of each parameter by its name; every one stands in exactly one."""
    model = run.build()
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    actual = [
        (names[id(parameter)], (type(optimizer), group))
        for optimizer in optimizers(run, model)
        for group in optimizer.param_groups
        for parameter in group["params"]
    ]
    assert sorted(name for name, _ in actual) == sorted(names.values())
    return dict(actual)


def decayed(run) -> set[str]:
    return {name for name, (_, group) in groups(run).items() if group["weight_decay"] > 0}


def test_only_matrices_decay():
    run = text_run(attention="rbf", model=FULL)
    parts = ("attn.query", "attn.key", "attn.value", "attn.proj", "mlp.fc", "mlp.proj")
    matrices = {f"blocks.{layer}.{part}.weight" for layer in range(2) for part in parts}
    values = {"blocks.1.values.weight", "blocks.1.gate.weight"}
    assert decayed(run) == matrices | values | {"embedding.weight", "head.weight"}
    assert all(group["weight_decay"] in (0, 0.05) for _, group in groups(run).values())


def test_positions_and_tokens_of_pictures_do_not_decay():
    run = picture_run(attention="gka")
    parts = ("attn.proj", "mlp.fc1", "mlp.fc2")
    assert decayed(run) == {
        "patch_embed.proj.weight",
        "head.weight",
        *(f"blocks.0.{p}.weight" for p in parts),
    }
    names = set(groups(run))
    assert {"position", "class_token", "blocks.0.attn.kernel.log_sigma", "blocks.0.norm1.weight"} <= names


@pytest.mark.parametrize("name", ["gpa", "gka", "rbf", "krause", "qk_norm", "mixed", "rpe"])
def test_no_scale_and_no_bias_of_lags_decays(name):
    model = GPTConfig(vocab_size=11, context=LENGTH, dim=32, depth=1, num_heads=4)
    options = VARIANTS[name].options
    run = text_run(attention=name, options=options, model=model)
    spared = {"log_sigma", "sigma", "alpha", "log_length", "log_tau", "bias", "g"}
    assert not {parameter for parameter in decayed(run) if parameter.rsplit(".", 1)[-1] in spared}


def test_muon_gets_the_matrices_of_the_blocks_and_adamw_the_rest():
    actual = groups(
        text_run(
            attention="gka", optimizer="muon", model=GPTConfig(**vars(FULL) | {"value_embeddings": False})
        )
    )
    muon = {name for name, (kind, _) in actual.items() if kind is torch.optim.Muon}
    parts = ("attn.proj", "mlp.fc", "mlp.proj")
    assert muon == {f"blocks.{layer}.{part}.weight" for layer in range(2) for part in parts}
    assert {kind for name, (kind, _) in actual.items() if name not in muon} == {torch.optim.AdamW}


def test_value_embeddings_are_tables_and_not_for_muon():
    actual = groups(text_run(optimizer="muon", model=FULL))
    assert actual["blocks.1.values.weight"][0] is torch.optim.AdamW
    assert actual["blocks.1.gate.weight"][0] is torch.optim.Muon
    assert actual["embedding.weight"][0] is torch.optim.AdamW


def test_a_rate_of_its_own_multiplies_and_stops_the_decay():
    run = text_run(attention="gpa", options={"num_terms": 3}, rates={".kernel.": 5.0, "head": 0.5}, lr=2.0)
    parts = optimizers(run, run.build())
    assert set_rates(run, 0, parts) == 2.0
    actual = {group["rate"]: group for group in parts[0].param_groups if group["rate"] != 1.0}
    assert {rate: (group["lr"], group["weight_decay"]) for rate, group in actual.items()} == {
        5.0: (10.0, 0.0),
        0.5: (1.0, 0.0),
    }


def test_the_settings_of_adamw_are_the_runs():
    run = text_run(betas=(0.8, 0.95), eps=1e-10, lr=3e-4)
    (adamw,) = optimizers(run, run.build())
    assert isinstance(adamw, torch.optim.AdamW)
    assert adamw.defaults["betas"] == (0.8, 0.95) and adamw.defaults["eps"] == 1e-10


def test_muons_momentum_rises_and_its_decay_falls_to_zero():
    run = text_run(optimizer="muon", steps=1000, weight_decay=0.2, schedule="trapezoid", cooldown=0.5)
    parts = optimizers(run, run.build())
    muon = next(optimizer for optimizer in parts if isinstance(optimizer, torch.optim.Muon))
    adamw = next(optimizer for optimizer in parts if isinstance(optimizer, torch.optim.AdamW))
    settings = {}
    for step in (0, 150, 300, 750, 999):
        set_rates(run, step, parts)
        (group,) = muon.param_groups
        settings[step] = group["momentum"], group["weight_decay"], group["lr"]
    assert settings[0] == pytest.approx((0.85, 0.2, 0.01))
    assert settings[150] == pytest.approx((0.90, 0.17, 0.01))
    assert settings[300] == pytest.approx((0.95, 0.14, 0.01))
    assert settings[750] == pytest.approx((0.95, 0.05, 0.005))
    assert settings[999][1] == pytest.approx(0.2 / 1000)
    assert {group["weight_decay"] for group in adamw.param_groups} == {0.0, 0.2}  # AdamW's does not fall
