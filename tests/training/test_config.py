"""The settings of a run: smaller scales, what is refused, JSON and back."""

import json
from dataclasses import replace

import pytest

from gkalib.training import Augment, LaunchConfig
from gkalib.training.config import config_of
from tests.training.runs import picture_run, text_run

SMALLER = {
    "smoke": {"steps": 2, "model": {"dim": 8}, "batch": 2},
    "reduced": {"steps": 5, "model": {"depth": 3}},
    "reduced-cpu": {"steps": 4, "model": {"depth": 2, "num_heads": 4}},
}


def test_a_smaller_scale_changes_what_it_says_and_nothing_else():
    run = text_run(smaller=SMALLER)
    smoke = run.smoke()
    assert smoke == replace(run, scale="smoke", steps=2, batch=2, model=replace(run.model, dim=8))
    assert run.reduced() == replace(run, scale="reduced", steps=5, model=replace(run.model, depth=3))
    cpu = run.reduced("cpu")
    assert cpu == replace(run, scale="reduced", steps=4, model=replace(run.model, depth=2, num_heads=4))
    assert run.scale == "full" and run.steps == 10


def test_nested_settings_of_pictures_are_merged_too():
    smaller = {"smoke": {"augment": {"mixup": 0.0}, "model": {"depth": 2}}}
    run = picture_run(augment=Augment(mixup=0.8, cutmix=1.0, repeats=3), smaller=smaller)
    assert run.smoke().augment == Augment(cutmix=1.0, repeats=3)
    assert run.smoke().model == replace(run.model, depth=2)


def test_a_scale_that_no_one_described_is_refused():
    with pytest.raises(ValueError, match=r"^train: tiny says nothing of a smoke run"):
        text_run().smoke()
    with pytest.raises(ValueError, match=r"^train: tiny says nothing of a reduced-cpu run"):
        text_run(smaller={"smoke": {}}).reduced("cpu")


def test_a_scale_must_itself_be_a_run():
    with pytest.raises(ValueError, match=r"^train: batch 3 is no multiple of device_batch 2"):
        text_run(smaller={"smoke": {"batch": 3}}).smoke()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"crop": (2.0, 3.0)}, "crop must rise from above 0 to 1, not be 2.0 3.0"),
        ({"crop": (0.9, 0.1)}, "crop must rise from above 0 to 1, not be 0.9 0.1"),
        ({"ratio": (0.0, 2.0)}, "ratio must rise from above 0 on, not be 0.0 2.0"),
        ({"policy": "rand-mXX"}, "policy must read like rand-m9-mstd0.5-inc1, not 'rand-mXX'"),
        ({"policy": "random"}, "policy must read like rand-m9-mstd0.5-inc1, not 'random'"),
    ],
    ids=str,
)
def test_what_cannot_happen_to_a_picture_is_refused(setting, message):
    with pytest.raises(ValueError) as raised:
        Augment(**setting)
    assert str(raised.value) == f"train: {message}"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "steps must be at least 1, not 0"),
        ({"batch": 0}, "batch must be at least 1, not 0"),
        ({"device_batch": -1}, "device_batch must be at least 1, not -1"),
        ({"device_batch": 3}, "batch 4 is no multiple of device_batch 3"),
        ({"device_batch": 8}, "batch 4 is no multiple of device_batch 8"),
        ({"lr": -1.0}, "lr must be zero or more, not -1.0"),
        ({"lr": float("nan")}, "lr must be zero or more, not nan"),
        ({"seed": -1}, "seed must be zero or more, not -1"),
        ({"warmup": -5}, "warmup must be zero or more, not -5"),
        ({"warmup": 11}, "warmup must be at most the run's 10 steps, not 11"),
        ({"weight_decay": -0.1}, "weight_decay must be zero or more, not -0.1"),
        ({"ema": 1.0}, "ema must be at least 0 and below 1, not 1.0"),
        ({"clip": 0.0}, "clip must be above zero, not 0.0; None does not clip"),
        ({"cooldown": 1.5}, "cooldown must be a share of the steps from 0 to 1, not 1.5"),
        ({"rates": {"bank": -1.0}}, "rates must be zero or more, not {'bank': -1.0}"),
        ({"schedule": "linear"}, "schedule must be one of cosine, trapezoid, tenth, not 'linear'"),
        ({"optimizer": "sgd"}, "optimizer must be one of adamw, muon, not 'sgd'"),
        ({"dtype": "half"}, "dtype must be one of float32, bfloat16, float16, not 'half'"),
    ],
)
@pytest.mark.usefixtures("as_a_user")
def test_what_cannot_be_run_is_refused(settings, message):
    with pytest.raises(ValueError) as raised:
        text_run(**settings)
    assert str(raised.value) == f"train: {message}"


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"workers": -1}, "train: workers must be at least 0, not -1"),
        ({"log_every": 0}, "train: log_every must be at least 1, not 0"),
        ({"save_every": float("nan")}, "train: save_every must be at least 0, not nan"),
        ({"snapshots": -5}, "train: snapshots must be at least 0, not -5"),
    ],
    ids=lambda given: next(iter(given)) if isinstance(given, dict) else "",
)
def test_how_a_run_is_launched_is_checked_before_it_starts(option, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        LaunchConfig(**option)


def test_layers_may_be_names_and_variants_with_options():
    run = text_run(attention=["softmax", {"name": "gka", "sigma": 2.0}], options={})
    first, second = run.layers()
    assert first.name() == "softmax"
    assert second(16, 2).kernel.sigma.tolist() == pytest.approx([2.0, 2.0])


@pytest.mark.parametrize(
    "run",
    [
        text_run(smaller=SMALLER, rates={".kernel.": 5.0}, clip=1.0, wrap=70),
        text_run(attention=["softmax", {"name": "gka", "sigma": 2.0}], betas=(0.8, 0.95)),
        picture_run(augment=Augment(crop=(0.08, 1.0), policy="rand-m9-mstd0.5-inc1"), ema=0.9, smoothing=0.1),
        picture_run(scale="reduced", seed=4, dtype="bfloat16", limit=100),
    ],
    ids=["text", "layers", "augmented", "pictures"],
)
def test_a_run_survives_json(run):
    stored = json.loads(json.dumps(run.settings()))
    again = config_of(stored)
    assert again == run and type(again) is type(run)
    assert again.settings() == run.settings()
    assert "smaller" not in stored


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "audio"},
        {"kind": None},
        {"shade": 1},
        {"model": {"width": 3}},
        {"model": 7},
        {"steps": "ten"},
    ],
    ids=str,
)
@pytest.mark.usefixtures("as_a_user")
def test_what_is_no_run_is_refused(change):
    with pytest.raises(ValueError, match=r"^these are not the settings of a run"):
        config_of(text_run().settings() | change)
    with pytest.raises(ValueError, match=r"^these are not the settings of a run"):
        config_of({})
