"""The recipes of images: the papers' parameters, every arm at every scale; tests/papers has the settings."""

import csv
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch

from gkalib.models.vit import SIZES
from gkalib.training import LaunchConfig, VisionConfig, recipe, train

GKA = [f"gka-imagenet-{size}" for size in SIZES]
KARAT = ["karat-cifar10", "karat-cifar100", "karat-imagenet"]
# The recipes of KArAt differ in the data and the head, which is tested apart.
ARMS = [(name, arm) for name in (*GKA, "karat-cifar10") for arm in recipe(name).arms]

LEDGER = Path(__file__).resolve().parents[2] / "data" / "results" / "papers" / "arms.csv"
TRAINED = [
    *zip(GKA, ["gka", "vlt", "deit"], strict=True),
    *zip(KARAT, ["tiny-hybrid", "small-g3u", "base-g3b-simplex"], strict=True),
]
BASES = ("rational", "mexican-hat", "morlet", "dog", "meyer", "shannon")
BRIEFLY = [
    ("karat-cifar10", f"tiny-{arm}") for arm in ("g3b", "g3b-identity", "g3b-silu", "g3b-gelu", *BASES)
]


def run_of(name: str, arm: str) -> VisionConfig:
    run = recipe(name).run(arm)
    assert isinstance(run, VisionConfig)
    return run


def parameters(run: VisionConfig) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in run.build().parameters())


def shallow(run: VisionConfig) -> VisionConfig:
    """The same with two blocks, which are built sooner."""
    return replace(run, model=replace(run.model, depth=2))


@cache
def of_softmax(size: str) -> int:
    """The parameters of two blocks, ten classes."""
    return parameters(shallow(run_of("karat-cifar10", f"{size}-softmax")))


@pytest.mark.parametrize(
    "size, arm, expected",
    [
        ("tiny", "deit", 5_717_416),
        ("small", "deit", 22_050_664),
        ("base", "deit", 86_567_656),
        ("tiny", "gka", 4_383_436),
        ("small", "gka", 16_728_496),
        ("base", "gka", 65_306_488),
        ("tiny", "vlt", 5_275_048),
    ],
)
def test_gka_has_the_papers_parameters(size, arm, expected):
    assert parameters(run_of(f"gka-imagenet-{size}", arm)) == expected


@pytest.mark.parametrize(
    "name, arm, expected",
    [
        ("karat-cifar10", "tiny-softmax", 5_526_346),
        ("karat-cifar10", "tiny-g3b", 6_292_282),
        ("karat-cifar10", "tiny-g3u", 5_590_174),
        ("karat-cifar10", "base-softmax", 85_806_346),
        ("karat-cifar10", "base-g1b", 87_508_426),
        ("karat-cifar10", "base-g1u", 85_948_186),
        ("karat-cifar10", "small-softmax", 21_669_514),
        # The paper's table has Small with the head of ImageNet.
        ("karat-imagenet", "small-softmax", 22_050_664),
        ("karat-imagenet", "small-g3b", 23_582_536),
        ("karat-imagenet", "small-g3u", 22_178_320),
        ("karat-cifar100", "tiny-softmax", 5_526_346 + 90 * 193),
    ],
)
def test_karat_has_the_papers_parameters(name, arm, expected):
    assert parameters(run_of(name, arm)) == expected


@pytest.mark.parametrize("size", SIZES)
def test_operators_have_as_many_parameters_as_the_fitted_rule(size):
    # (2 G + 3) r N a head, in each block, here two, or once for all.
    heads = SIZES[size].num_heads
    for grid in (1, 5, 11):
        for letter, blocks in {"b": 2, "u": 1}.items():
            added = parameters(shallow(run_of("karat-cifar10", f"{size}-g{grid}{letter}"))) - of_softmax(size)
            assert added == (2 * grid + 3) * 12 * 197 * heads * blocks


def test_karat_has_the_papers_arms():
    arms = list(recipe("karat-imagenet").arms)
    assert arms == list(recipe("karat-cifar10").arms) == list(recipe("karat-cifar100").arms)
    assert {f"tiny-g{g}{m}" for g in (1, 3, 5, 7, 9, 11) for m in ("b", "u")} <= set(arms)
    assert {f"small-g{g}{m}" for g in (1, 3, 5, 11) for m in ("b", "u")} <= set(
        arms
    ) and "small-g7b" not in arms
    assert {
        f"{size}-{basis}" for size in ("tiny", "base") for basis in ("rational", "mexican-hat", "shannon")
    } <= set(arms)
    assert {"tiny-hybrid", "base-hybrid", "tiny-g3u-simplex", "base-g5u-r24", "tiny-g1u-gelu"} <= set(arms)


@pytest.mark.parametrize("size", ["tiny", "base"])
@pytest.mark.parametrize("arm", ["hybrid", "mexican-hat", "g3u-simplex"])
def test_what_an_arm_does_is_in_its_layers(size, arm):
    run = run_of("karat-cifar10", f"{size}-{arm}").smoke()
    layers = [block.attn for block in run.build().blocks]
    normalizer = layers[0].normalizer
    if arm == "hybrid":
        assert normalizer.heads[1] == {"tiny": 1, "base": 6}[size]
    elif arm == "mexican-hat":
        assert normalizer.first.basis.name == "mexican_hat"
    else:
        assert all(layer.normalizer is normalizer for layer in layers)
        assert normalizer.projection == "after"


@pytest.mark.parametrize("name, arm", ARMS)
def test_every_arm_builds(name, arm):
    run = shallow(run_of(name, arm))
    if name == "karat-cifar10":
        size, operator = arm.split("-", 1)
        assert (parameters(run) > of_softmax(size)) == (operator != "softmax")
    else:
        ours = {variant: parameters(shallow(run_of(name, variant))) for variant in ("deit", "vlt", "gka")}
        assert ours["gka"] < ours["vlt"] < ours["deit"] and parameters(run) == ours[arm]


def test_the_data_sets_differ_in_what_they_must():
    for arm in recipe("karat-cifar10").arms:
        ours = run_of("karat-cifar10", arm)
        for data, classes in {"cifar100": 100, "imagenet": 1000}.items():
            run = run_of(f"karat-{data}", arm)
            assert replace(run.model, num_classes=10) == ours.model and run.model.num_classes == classes
            assert (run.data, run.attention, run.options) == (data, ours.attention, ours.options)
            assert run.augment == ours.augment


@pytest.mark.parametrize(
    "name, arm, data",
    [
        ("gka-imagenet-tiny", "gka", "cifar10"),
        ("gka-imagenet-base", "vlt", "cifar10"),
        ("karat-cifar10", "tiny-g3b", "cifar10"),
        ("karat-cifar100", "base-g3u-r24", "cifar100"),
        ("karat-imagenet", "small-g1b", "cifar10"),
    ],
)
def test_smaller_runs(name, arm, data):
    run = run_of(name, arm)
    smoke, card, core = run.smoke(), run.reduced(), run.reduced("cpu")
    assert [config.scale for config in (smoke, card, core)] == ["smoke", "reduced", "reduced"]
    assert smoke.data == "made-up" and card.data == core.data == data
    assert (smoke.attention, smoke.options) == (core.attention, core.options) == (run.attention, run.options)
    classes = 100 if data == "cifar100" else 10
    assert card.model == replace(run.model, image_size=32, patch_size=4, num_classes=classes)
    assert card.augment == smoke.augment == run.augment
    assert core.augment.mixup == core.augment.cutmix == core.smoothing == 0
    assert parameters(smoke) < 500_000 and 750_000 < parameters(core) < 1_600_000
    assert all(config.parts % 2 == 0 for config in (smoke, card, core))


def kind(run: VisionConfig) -> tuple:
    """What tells one arm's code from another's: the attention and its options but for sizes."""
    options = {name: value for name, value in run.options.items() if name not in ("grid", "rank")}
    if "softmax_heads" in options:
        return run.attention, "hybrid"
    if {"base", "projection"} & options.keys():  # both stand with either mode, which is tested without them
        options.pop("mode")
    return run.attention, *sorted((name, str(value)) for name, value in options.items())


def test_what_stands_behind_the_papers_cells_is_trained_below():
    with LEDGER.open(encoding="utf-8", newline="") as file:
        listed = [(row["name"], row["arm"]) for row in csv.DictReader(file) if row["kind"] == "train"]
    runs = [recipe(name).run(arm) for name, arm in listed]
    kinds = {kind(run) for run in runs if isinstance(run, VisionConfig)}
    assert kinds <= {kind(run_of(name, arm)) for name, arm in (*TRAINED, *BRIEFLY)}


def test_data_sets_share_their_smoke_runs():
    for arm in recipe("karat-cifar10").arms:
        same = run_of("karat-cifar10", arm).smoke().settings()
        for name in KARAT[1:]:
            run = run_of(name, arm).smoke().settings()
            unlike = {field for field in run if run[field] != same[field]}
            assert unlike <= {"experiment", "lr", "smaller"}, (name, arm)


@pytest.mark.parametrize("name, arm", [*TRAINED, *BRIEFLY])
def test_smoke(name, arm, tmp_path):
    run = run_of(name, arm).smoke()
    if (name, arm) in BRIEFLY:
        run = replace(run, steps=2, warmup=1, eval_images=32)
    record = train(run, LaunchConfig(out=tmp_path, device="cpu", quiet=True))
    assert record.scale == "smoke" and record.recipe["data"] == "made-up"
    assert 2.0 < record.metrics["val_loss"] < 2.7 and 2.0 < record.metrics["train_loss"] < 2.7
