"""What decides an experiment stands in its file, names arms and metrics that are there, and adds up."""

import math
import random
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest

from gkalib import experiments, results
from gkalib.experiments.decisions import Check, Contrast, decide, difference, differences
from gkalib.results import Record
from tests.need import marks

DECIDED = (
    *("gka-pictures", "gka-stories", "gpa-bump", "gpa-bump-highest", "gpa-novels", "gpa-novels-1000"),
    *("gpa-novels-3000", "karat-pictures"),
    *("one-budget-images", "one-budget-text", "rbf-stories"),
)
RARE = {"flat_minus_random"}  # measured where there is a head with a flat bank


def named(name):
    return import_module(f"gkalib.experiments.{name.replace('-', '_')}")


LOWER = Contrast(claim="a is lower", metric="loss", weights=difference("a", "b"), sign=-1, delta=0.1)
SAME = Contrast(claim="c is as good as b", metric="loss", weights=difference("c", "b"), delta=0.1)


def records(means, metric="loss", seeds=range(5)):
    """One run of each arm and seed; a seed moves all arms by as much as it is, and each by a little."""
    return [
        Record(
            experiment="planted",
            arm=arm,
            scale="reduced",
            recipe={},
            seed=seed,
            device="cpu",
            commit="0" * 12,
            clean=True,
            date="2026-01-31T00:00:00+00:00",
            wall_seconds=1,
            metrics={metric: mean + seed + random.Random(f"{arm}{seed}").gauss(0, 0.02)},
        )
        for arm, mean in means.items()
        for seed in seeds
    ]


def test_a_planted_difference_is_found_and_none_is_as_good():
    judged = decide(records({"a": 1.0, "b": 1.5, "c": 1.5}), [LOWER, SAME])
    assert {claim: one.verdict for claim, one in judged.items()} == {
        "a is lower": "reproduced",
        "c is as good as b": "as good as",
    }
    assert judged["a is lower"].estimate.value == pytest.approx(-0.5, abs=0.05)
    assert judged["a is lower"].estimate.degrees == 8
    assert judged["a is lower"].low < -0.5 < judged["a is lower"].high < 0


def test_differences_beside_the_claims_have_intervals_of_their_own():
    pairs = {"a minus b": ("a", "b"), "c minus b": ("c", "b")}
    planted = records({"a": 1.0, "b": 1.5, "c": 1.5})
    found = differences(planted, pairs, metric="loss", delta=0.1)
    assert found["a minus b"].estimate.value == pytest.approx(-0.5, abs=0.05)
    alone = decide(planted, [LOWER])["a is lower"]
    assert (found["a minus b"].low, found["a minus b"].high) == pytest.approx((alone.low, alone.high))
    assert found["c minus b"].verdict == "as good as"


def test_a_difference_the_other_way_is_not_what_was_claimed():
    judged = decide(records({"a": 1.5, "b": 1.0, "c": 1.5}), [LOWER, SAME])
    assert {one.verdict for one in judged.values()} == {"not reproduced"}


def test_only_primary_contrasts_are_adjusted_for_one_another():
    runs = records({"a": 1.0, "b": 1.5, "c": 1.5})
    beside = Contrast(
        claim="beside", metric="loss", weights=difference("a", "b"), sign=-1, delta=0.1, primary=False
    )
    alone, both = decide(runs, [LOWER]), decide(runs, [LOWER, SAME, beside])
    assert alone["a is lower"].high < both["a is lower"].high
    assert both["beside"].high == pytest.approx(alone["a is lower"].high)


def test_a_failed_check_leaves_undecided_what_it_concerns():
    runs = records({"a": 1.0, "b": 1.5, "c": 1.5})
    check = Check(reason="a has to be above 9", metric="loss", arms=("a",), concerns=("loss",), above=9.0)
    judged = decide(runs, [LOWER, SAME], [check])
    assert judged["a is lower"].verdict == "undecided" and judged["a is lower"].high < 0
    assert judged["c is as good as b"].verdict == "as good as"
    elsewhere = replace(check, concerns=("other",))
    assert decide(runs, [LOWER], [elsewhere])["a is lower"].verdict == "reproduced"
    unmeasured = Check(reason="nobody measured it", metric="other", arms=("c",), concerns=("loss",))
    assert decide(runs, [SAME], [unmeasured])["c is as good as b"].verdict == "undecided"


def test_seeds_that_are_not_complete_do_not_count():
    means = {"a": 1.0, "b": 1.5, "c": 1.5}
    half = [run for run in records(means) if (run.arm, run.seed) != ("b", 4)]
    assert decide(half, [LOWER])["a is lower"].estimate.degrees == 6
    one = decide(records(means, seeds=[3]), [LOWER])["a is lower"]
    assert one.verdict == "undecided" and math.isnan(one.estimate.value)
    assert decide(records(means, metric="other"), [LOWER])["a is lower"].verdict == "undecided"


def test_arms_on_other_data_belong_to_another_fit():
    """There seeds draw other windows, so that their effects are no part of this model's."""
    runs = records({"a": 1.0, "b": 1.5})
    alone = decide(runs, [LOWER])
    other = [
        replace(run, recipe={"data": {"wrap": 70}}, metrics={"loss": run.metrics["loss"] - 3.0 * run.seed**2})
        for run in records({"c": 2.0, "d": 2.0})
    ]
    assert decide(runs + other, [LOWER]) == alone
    across = Contrast(claim="c is lower", metric="loss", weights=difference("c", "b"), sign=-1, delta=0.1)
    assert decide(runs + other, [across])["c is lower"].estimate.degrees > 0


def test_kept_items_widen_an_interval(tmp_path, monkeypatch):
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path))
    runs = records({"a": 1.0, "b": 1.5})
    alone = decide(runs, [LOWER])["a is lower"]
    for run in runs:
        of_item = np.linspace(-1, 1, 50) * (run.arm == "a")
        results.save(run, items={"loss": run.metrics["loss"] + of_item})
    beside = decide(runs, [LOWER])["a is lower"]
    assert beside.estimate.value == alone.estimate.value
    spread = np.linspace(-1, 1, 50).std(ddof=1) / math.sqrt(50)
    assert beside.estimate.error == pytest.approx(math.hypot(alone.estimate.error, spread))


def test_an_arm_has_the_rate_that_its_sweep_found():
    swept = [name for name in results.experiments() if name.endswith("-rates")]
    assert swept
    for name in swept:
        decided = name.removesuffix("-rates")
        rates = {study.arm: study.lr for study in experiments.experiment(decided)[0]}
        found = results.load(name)
        assert {record.arm for record in results.load(decided)} <= {record.arm for record in found}
        assert all(record.metrics["lr"] == rates[record.arm] for record in found)
        for record in found:
            tried = sorted((float(row["val_loss"]), float(row["lr"])) for row in results.rows(record))
            rates_tried = sorted(rate for _, rate in tried)
            broken = {rate / 2 for loss, rate in tried if math.isinf(loss)}
            best = next(rate for _, rate in tried if rate not in broken)
            assert record.metrics["lr"] == best and best not in (rates_tried[0], rates_tried[-1])


@pytest.mark.parametrize("name", DECIDED)
def test_what_decides_names_what_is_there(name):
    module = named(name)
    arms = {study.arm for study in module.studies()}
    assert any(one.primary for one in module.CONTRASTS)
    for one in module.CONTRASTS:
        assert set(one.weights) <= arms
        assert len(one.weights) == 1 or abs(sum(one.weights.values())) < 1e-9
    for check in module.CHECKS:
        assert set(check.arms) <= arms
        assert set(check.concerns) <= {one.metric for one in module.CONTRASTS}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=marks(named(name).studies()[0].task)) for name in DECIDED]
)
def test_every_arm_of_a_contrast_has_its_metric(name):
    module = named(name)
    measure = experiments.experiment(name)[1]
    metrics = {
        study.arm: experiments.train(study.smoke(), measure=measure).metrics for study in module.studies()
    }
    for one in (*module.CONTRASTS, *module.CHECKS):
        for arm in getattr(one, "weights", None) or one.arms:
            assert one.metric in metrics[arm].keys() | RARE, (one.metric, arm)
