"""What the ledger of the papers calls ready trains: a short smoke run of every kind of arm."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from gkalib.training import LaunchConfig, VisionConfig, recipe, train
from gkalib.training.config import TrainConfig

FILE = Path(__file__).resolve().parents[2] / "data" / "results" / "papers" / "arms.csv"
SIZE = ("grid", "rank")  # options that only change how large an operator is
# What tests/training/test_vision_recipes.py trains already.
TRAINED = [
    *((f"gka-imagenet-{size}", arm) for size, arm in (("tiny", "gka"), ("small", "vlt"), ("base", "deit"))),
    *(("karat-cifar10", arm) for arm in ("tiny-hybrid", "small-g3u", "base-g3b-simplex")),
]
BASES = ("rational", "mexican-hat", "morlet", "dog", "meyer", "shannon")
HERE = ("g3b", "g3b-identity", "g3b-silu", "g3b-gelu", *BASES)


def listed() -> list[tuple[str, str]]:
    """The arms of recipes that stand behind the papers' cells."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return [(row["name"], row["arm"]) for row in csv.DictReader(file) if row["kind"] == "train"]


def kind(run: TrainConfig) -> tuple:
    """What tells one arm's code from another's: the attention and its options but for sizes."""
    options = {name: value for name, value in run.options.items() if name not in SIZE}
    if "softmax_heads" in options:
        return run.attention, "hybrid"
    if {"base", "projection"} & options.keys():  # both stand with either mode, which is tested without them
        options.pop("mode")
    return run.attention, *sorted((name, str(value)) for name, value in options.items())


def test_every_kind_of_arm_is_trained_by_a_test():
    vision = [recipe(name).run(arm) for name, arm in listed()]
    kinds = {kind(run) for run in vision if isinstance(run, VisionConfig)}
    ours = [*TRAINED, *(("karat-cifar10", f"tiny-{arm}") for arm in HERE)]
    assert kinds <= {kind(recipe(name).run(arm)) for name, arm in ours}


def test_data_sets_share_their_smoke_runs():
    for name, arm in listed():
        if name in ("karat-cifar100", "karat-imagenet"):
            run, same = recipe(name).run(arm).smoke(), recipe("karat-cifar10").run(arm).smoke()
            unlike = {field for field in run.settings() if run.settings()[field] != same.settings()[field]}
            assert unlike <= {"experiment", "lr", "smaller"}, (name, arm)


@pytest.mark.parametrize("arm", HERE)
def test_smoke(arm, tmp_path, monkeypatch):
    run = replace(recipe("karat-cifar10").run(f"tiny-{arm}").smoke(), steps=2, warmup=1, eval_images=32)
    record = train(run, LaunchConfig(out=tmp_path, device="cpu", quiet=True))
    assert 2.0 < record.metrics["train_loss"] < 2.7 and 2.0 < record.metrics["val_loss"] < 2.7
