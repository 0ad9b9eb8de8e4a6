"""An experiment is run by its name, trained or measured, and leaves one record an arm and seed."""

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from chapters.experiments import FILES, approximations, experiment, traps, variants
from chapters.experiments.__main__ import main
from gkalib import experiments, results
from gkalib.data import Heads
from gkalib.experiments import Measured
from gkalib.experiments.runner import sweep
from gkalib.training.loop import NotFinite
from tests.bare import BARE, only

ROOT = Path(__file__).resolve().parents[2]


NOT_RUN = {"kan-cifar100"}  # CIFAR-100 has no package to fetch it from


def test_every_measured_experiment_has_the_arms_that_are_recorded():
    for name in FILES:
        chosen = experiment(name)
        assert chosen.name == name
        if not isinstance(chosen, Measured):
            continue
        if name in NOT_RUN:
            with pytest.raises(ValueError, match=f"no run of '{name}'"):
                results.load(name)
            continue
        records = results.load(name)
        assert {record.arm for record in records} == set(chosen.arms)
        for record in records:
            assert (record.scale, record.device == "cpu") == (chosen.scale, chosen.device == "cpu")
            assert record.recipe == chosen.recipe(record.arm)


def test_a_measured_arm_is_kept_for_each_seed(store, monkeypatch, capsys):
    heads = Heads(*torch.randn(3, 2, 3, 24, 8, dtype=torch.float64).unbind())
    monkeypatch.setattr(approximations, "_trained", lambda: ([heads], [heads]))
    monkeypatch.setattr(results, "load_average", iter([0.5]).__next__)  # asked once, before the first arm
    assert main(["approximations", "mean", "elu", "--seed", "1", "--seeds", "2"]) == 0
    kept = results.load("approximations")
    assert {(record.arm, record.seed) for record in kept} == {
        (arm, seed) for arm in ("mean", "elu") for seed in (1, 2)
    }
    assert {record.load for record in kept} == {0.5}
    (mean, _) = (record for record in kept if record.arm == "mean")
    errors = [float(row["error"]) for row in results.rows(mean)]
    assert mean.metrics["err_1"] == pytest.approx(sum(errors) / 3) and len(errors) == 3
    assert capsys.readouterr().out.startswith("mean-reduced-s1-cpu  err_1 ")


def test_only_what_is_missing_is_run(store, capsys):
    scope = ["--smoke", "--missing"]
    assert main(["variants-digits", "softmax", *scope]) == 0
    assert main(["variants-digits", "softmax", "vlt", *scope, "--seeds", "2"]) == 0
    printed = capsys.readouterr().out.splitlines()
    runs = [" ".join(line.split("-")[:3:2]) for line in printed]
    assert runs == ["softmax s0", "vlt s0", "softmax s1", "vlt s1"]  # and softmax s0 once
    record = results.load("variants-digits", arm="vlt")[0]
    results.save(replace(record, recipe=record.recipe | {"steps": 4}))
    assert main(["variants-digits", "vlt", *scope, "--seeds", "2"]) == 0
    assert capsys.readouterr().out.startswith(record.run)  # whose recipe was another


def test_runs_of_files_that_are_not_committed_are_announced_and_made_again(store, monkeypatch, capsys):
    scope = ["variants-digits", "softmax", "--smoke", "--missing"]
    found = results.provenance()
    for clean, made in ((False, 1), (False, 0), (True, 1), (True, 0), (False, 0)):
        monkeypatch.setattr(results, "provenance", lambda *names, clean=clean: {**found, "clean": clean})
        assert main(scope) == 0
        printed = capsys.readouterr()
        assert printed.out.count("softmax-smoke") == made
        assert ("no commit has the files" in printed.err) == (made == 1 and not clean)


def test_a_sweep_goes_on_until_the_best_rate_lies_between_two_others(store, monkeypatch):
    """It begins with half a rate that is too low, and ends with the best of at least five."""
    (study,) = (one for one in variants.digits() if one.arm == "softmax")
    rates = [5e-4 * 2**power for power in range(5)]
    record = sweep(replace(study, steps=80, batch=16, warmup=0, seed=7), rates=rates[::-1])
    assert (record.experiment, record.seed, record.recipe["steps"]) == ("variants-digits-rates", 7, 80)
    rows = [(float(row["val_loss"]), float(row["lr"])) for row in results.rows(record)]
    rates = [rate for _, rate in rows]
    assert rates == pytest.approx([5e-4 * 2**power for power in range(len(rows))])
    assert len(rates) > 4 and (record.metrics["val_loss"], record.metrics["lr"]) == min(rows)
    assert min(rows)[1] == rates[-2]


def test_a_rate_at_which_the_loss_is_no_number_is_the_worst_and_its_neighbor_is_not_taken(store, monkeypatch):
    (study,) = (one for one in variants.digits() if one.arm == "softmax")

    def diverges(chosen):
        if chosen.lr > 0.009:
            raise NotFinite("train: the loss is not a finite number")
        return chosen, None

    monkeypatch.setattr("gkalib.experiments.runner.fit", diverges)
    monkeypatch.setattr("gkalib.experiments.runner.evaluate", lambda chosen, _: {"val_loss": 1 - chosen.lr})
    record = sweep(replace(study, lr=8e-3, seed=7))
    losses = {float(row["lr"]): float(row["val_loss"]) for row in results.rows(record)}
    assert min(losses, key=losses.get) == 0.008 and losses[0.016] == math.inf
    assert record.metrics == {"lr": 0.004, "val_loss": losses[0.004]} and 0.002 in losses


def test_a_sweep_compares_means_over_seeds_on_items_that_decide_nothing(store, monkeypatch):
    (study,) = (one for one in variants.digits() if one.arm == "softmax")
    seen = []

    def trained(chosen):
        seen.append((chosen.seed, chosen.lr))
        return chosen, experiments.task(chosen.task, **chosen.data)

    decides = experiments.task(study.task, **study.data)

    def loss(chosen, learned):
        assert torch.equal(learned.held_out[0], decides.images[len(learned.images) :])
        return {"val_loss": abs(chosen.lr - 2e-3 * chosen.seed)}  # best at 0.002 and 0.006: the mean at both

    monkeypatch.setattr("gkalib.experiments.runner.fit", trained)
    monkeypatch.setattr("gkalib.experiments.runner.evaluate", loss)
    record = sweep(replace(study, seed=2), rates=[4e-3], seeds=2)
    assert set(seen) == {(seed, lr) for seed in (2, 3) for lr in (2e-3, 4e-3, 8e-3)}
    assert record.metrics == {"lr": 4e-3, "val_loss": pytest.approx(1e-3)}
    row = next(row for row in results.rows(record) if float(row["lr"]) == 8e-3)
    assert [float(row[name]) for name in ("val_loss_s2", "val_loss_s3")] == pytest.approx([4e-3, 2e-3])


def test_a_second_sweep_tries_the_rates_of_the_first(store, monkeypatch):
    """Its study has the rate by then that the first one found."""
    (study,) = (one for one in variants.digits() if one.arm == "softmax")
    monkeypatch.setattr("gkalib.experiments.runner.fit", lambda chosen: (chosen, None))
    monkeypatch.setattr(
        "gkalib.experiments.runner.evaluate", lambda chosen, _: {"val_loss": abs(chosen.lr - 0.03)}
    )
    first = sweep(replace(study, seed=7))
    rows = results.rows(first)
    assert [float(row["lr"]) for row in rows] == [study.lr * 2.0**power for power in range(-1, 6)]
    second = sweep(replace(study, seed=7, lr=first.metrics["lr"]))
    assert (results.rows(second), second.metrics, second.recipe) == (rows, first.metrics, first.recipe)


def test_what_cannot_be_run_is_refused(store, capsys):
    for words, said in (
        (["nothing"], "experiment: no experiment 'nothing'. Known: "),
        (["variants-digit"], "Did you mean 'variants-digits'?"),
        (["variants-digits", "gkaa"], "experiment: no arm 'gkaa' in 'variants-digits'. Known: "),
        (["traps", "cash"], "experiment: no arm 'cash' in 'traps'. Known: cache, runs"),
        (["counts", "--smoke"], "experiment: counts is measured, not trained, and has no smoke form"),
        (["counts", "--rates"], "experiment: counts is measured, not trained, and has no rates"),
    ):
        assert main(words) == 2
        assert said in capsys.readouterr().err


def test_the_traps_are_measured(store, monkeypatch):
    for name, value in (
        ("SIZES", (2**16, 2**20)),
        ("RUNS", 50),
        ("SECONDS", 0.01),
        ("cache_bytes", lambda device: 2**20),
    ):
        monkeypatch.setattr(traps, name, value)
    cache, runs = experiments.run(traps.MEASURED)
    assert set(cache.metrics) == {"cache_mib"} | {
        f"gbs_{name}_{size}" for name in ("again", "in_turn") for size in (2**16, 2**20)
    }
    assert cache.metrics["cache_mib"] == 1 and min(cache.metrics.values()) > 0
    metrics = runs.metrics
    assert metrics["least"] <= metrics["decile_1"] <= metrics["median"] <= metrics["decile_9"]
    assert metrics["decile_9"] <= metrics["greatest"] and metrics["least"] <= metrics["mean"]
    assert len(results.rows(runs)) == 50


def test_few_packages_more_than_a_bare_image_has_run_experiments(tmp_path):
    more = ("torchvision", "tokenizers", "scikit-learn", "scipy", "pandas")
    command = [sys.executable, "-m", "chapters.experiments", "variants-digits", "softmax", "--smoke"]
    environment = only(tmp_path, *BARE, *more)
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert [record.arm for record in results.load("variants-digits", root=tmp_path / "store")] == ["softmax"]
