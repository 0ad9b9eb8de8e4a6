"""Small runs: every variant learns, the same study gives the same run, a record holds it all."""

import json
import math
from dataclasses import replace
from importlib import import_module
from itertools import pairwise

import numpy as np
import pytest
import torch

from chapters.experiments import FILES, experiment
from chapters.experiments.__main__ import main as run
from gkalib import results
from gkalib.data import DATASETS, digits
from gkalib.data.images import image_data
from gkalib.experiments import Study, Trained, evaluate, fit, task, train
from gkalib.experiments.tasks import whole
from gkalib.layers import attention, for_model, variants
from gkalib.training.optim import learning_rate
from tests.training.test_optimizer import decayed
from tests.variants import VARIANTS, only_causal


def study(name: str = "softmax", **changes) -> Study:
    options = dict(VARIANTS[name].options)
    given = {"experiment": "toy", "arm": "one", "task": "digits", "attention": name, "options": options}
    return Study(**{**given, "steps": 60, "lr": 4e-3, "warmup": 5, **changes})


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in variants() if not only_causal(name)])
def test_every_variant_learns_digits(name):
    metrics = evaluate(*fit(study(name, steps=150))[:2])
    assert metrics["val_loss"] < metrics["baseline_loss"] and metrics["standard_errors"] > 2


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in variants() if getattr(attention(name), "causal", True)])
def test_every_causal_variant_learns_text(name):
    text = study(
        name,
        task="state-of-the-union",
        data={"context": 32, "limit": 40_000, "windows": 64},
        model={"dim": 32},
        steps=80,
        batch=8,
        lr=8e-3,
    )
    assert evaluate(*fit(text)[:2])["standard_errors"] > 2


def test_the_same_study_is_the_same_run_and_another_seed_is_not():
    runs = [train(study(steps=5, seed=seed)).metrics["val_loss"] for seed in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]


def test_frequencies_alone_are_the_baseline():
    digits = task("digits")
    counts = [1 + (digits.labels == label).sum().item() for label in range(10)]
    expected = [-math.log(counts[label] / sum(counts)) for label in digits.held_out[1].tolist()]
    assert digits.baseline().tolist() == pytest.approx(expected, rel=1e-5)
    assert 2.25 < digits.baseline().mean() < 2.35  # ten classes about equally often: log 10 = 2.303


def test_a_text_is_split_once_and_wrapped_where_asked():
    plain = task("state-of-the-union", limit=20_000)
    wrapped = task("state-of-the-union", limit=20_000, wrap=70)
    newline = wrapped.characters.index("\n")
    breaks = (wrapped.ids == newline).nonzero()[:, 0]
    assert breaks.diff().max() <= 71 and len(breaks) > 100
    assert len(plain.ids) + len(plain.rest) == 20_000
    assert abs(len(plain.rest) - 2_000) <= 1
    inputs, labels = plain.held_out
    assert torch.equal(inputs[:, 1:], labels[:, :-1])


def test_the_rate_rises_and_falls_to_a_tenth():
    one = study(steps=100, warmup=10)
    rates = [learning_rate(one, step) / one.lr for step in range(101)]
    assert rates[0] == pytest.approx(0.1) and rates[10] == max(rates) == pytest.approx(1.0)
    assert rates[100] == pytest.approx(0.1) and all(a >= b for a, b in pairwise(rates[10:]))


def test_a_matrix_decays_whatever_it_is_where_it_has_no_rate_of_its_own():
    """As the recorded studies had it; in recipes what a kernel learns is spared."""
    bank = study("gpa", weight_decay=0.5)
    lengths = {name for name in decayed(bank) if "log_length" in name}
    assert lengths and not lengths & decayed(replace(bank, rates={".kernel.": 1.0}))


def test_layers_may_have_options_of_their_own():
    mixed = study(attention=["softmax", {"name": "gka", "sigma": 2.0}])
    softmax, gka = mixed.layers()
    assert softmax is attention("softmax") and gka.options == {"sigma": 2.0}


@pytest.mark.parametrize("name", [name for name in FILES if isinstance(experiment(name), Trained)])
def test_every_experiment_names_what_exists(name):
    studies = experiment(name).studies()
    assert len({one.arm for one in studies}) == len(studies) > 0
    for one in studies:
        assert one.experiment == name
        for layer in for_model(one.layers(), 32, 4, length=16):
            layer(32, 4)  # an option without a default would be missed here
        results.record.digest(one.recorded())


def test_a_command_runs_an_arm_and_keeps_its_record(capsys, store):
    assert run(["variants-digits", "gka", "--smoke", "--seeds", "2"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2 and printed[0].startswith("gka-smoke-s0-") and "val_loss" in printed[0]
    records = results.load("variants-digits")
    assert {record.seed for record in records} == {0, 1}
    assert records[0].recipe["attention"] == "gka" and records[0].metrics["parameters"] > 1000
    assert json.loads(records[0].to_json())["scale"] == "smoke"
    assert records[0].data_sha256 == DATASETS["digits"].sha256 and records[0].threads == 1
    assert [row["step"] for row in results.rows(records[0])] == ["1", "2", "3"]


def test_every_experiment_is_listed_under_the_file_that_defines_it(capsys):
    assert run([]) == 0
    assert capsys.readouterr().out.split() == [*FILES]
    for name, file in FILES.items():
        defined = import_module(f"chapters.experiments.{file}").EXPERIMENTS
        assert defined[name].name == name and {*defined} <= {*FILES}


def test_pictures_and_labels_of_both_parts_stand_in_the_order_of_the_set():
    pixels, labels = whole(image_data("digits"))
    np.testing.assert_array_equal(pixels.squeeze(), np.round(digits().images * 255))
    np.testing.assert_array_equal(labels, digits().labels)


def test_an_unknown_task_names_the_known_ones():
    with pytest.raises(ValueError, match=r"^task: no task 'chess'. Known: digits, "):
        train(study(task="chess"))


@pytest.mark.parametrize(
    ("name", "data", "metric"),
    [("digits", {}, "accuracy"), ("state-of-the-union", {"windows": 8}, "val_loss")],
)
def test_the_outcomes_of_held_out_items_are_kept(name, data, metric, store):
    record = train(
        study(task=name, data=data, steps=2, warmup=0, batch=2),
        measure=lambda *_: {"ones": torch.ones(3)},
        keep=True,
    )
    kept = results.items(record)
    assert kept.keys() == {metric, "ones"} and record.metrics["ones"] == 1
    assert kept[metric].mean() == pytest.approx(record.metrics[metric], rel=1e-6)
    assert len(kept[metric]) == len(task(name, **data).held_out[0])
