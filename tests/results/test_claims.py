"""What decides an experiment lies beside its records: what these say of it, and the table that shows it."""

import json
import math
import random
from dataclasses import replace

import numpy as np
import pytest

from gkalib import results
from gkalib.results.claims import HEADER, Check, Contrast, claims, decide, difference, differences, stated
from tests.records import record

LOWER = Contrast(claim="a is lower", metric="loss", weights=difference("a", "b"), sign=-1, delta=0.1)
SAME = Contrast(claim="c is as good as b", metric="loss", weights=difference("c", "b"), delta=0.1)


def records(means, metric="loss", seeds=range(5)):
    """One run of each arm and seed; a seed moves all arms by as much as it is, and each by a little."""
    return [
        record(
            arm=arm,
            scale="reduced",
            recipe={},
            seed=seed,
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


def test_kept_items_widen_an_interval(store):
    runs = records({"a": 1.0, "b": 1.5})
    alone = decide(runs, [LOWER])["a is lower"]
    for run in runs:
        of_item = np.linspace(-1, 1, 50) * (run.arm == "a")
        results.save(run, items={"loss": run.metrics["loss"] + of_item})
    beside = decide(runs, [LOWER])["a is lower"]
    assert beside.estimate.value == alone.estimate.value
    spread = np.linspace(-1, 1, 50).std(ddof=1) / math.sqrt(50)
    assert beside.estimate.error == pytest.approx(math.hypot(alone.estimate.error, spread))


def keep(
    name: str,
    metric: str,
    means: dict[str, float],
    *,
    spread=0.001,
    seeds=range(5),
    device="cpu",
    year=2026,
    **changes,
) -> None:
    """Records of the experiment's own recipes, with planted means."""
    for arm, recipe in stated(name).arms.items():
        for seed in seeds:
            noise = random.Random(f"{arm}{seed}").gauss(0, spread)
            of = {"experiment": name, "arm": arm, "scale": "reduced", "seed": seed, "device": device}
            measured = {"date": f"{year}-01-31", "metrics": {metric: means.get(arm, 0.8) + noise}}
            results.save(record(recipe={**recipe, **changes}, **of, **measured))


def rows(name: str) -> dict[str, dict[str, str]]:
    return {row[0]: dict(zip(HEADER, row, strict=True)) for row in claims(name).cells}


def test_without_runs_nothing_is_claimed(store):
    for row in claims("gka-pictures").cells:
        assert row[2:4] == ["–", "–"] and row[5:] == ["–", "0", "not run"]


def test_what_runs_could_not_test_has_no_row(store):
    keep("gpa-novels", "val_loss", {"both": 0.7})
    found = rows("gpa-novels")
    assert "a head with a flat bank can go (both)" not in found
    assert found["the lowest loss is that of a bank beside rotary positions (both)"]["interval"].endswith(
        " nats"
    )


def test_points_have_the_size_of_delta_and_verdicts_follow(store):
    keep("gka-pictures", "accuracy", {"softmax": 0.86, "gka": 0.81})
    keep("one-budget-images", "accuracy", {"softmax": 0.86, "vlt": 0.861})
    found = rows("gka-pictures")
    behind = found["GKA is behind softmax attention"]
    assert behind["ours"].startswith("+5.") and behind["interval"].endswith(" points")
    assert (behind["δ"], behind["seeds"], behind["verdict"]) == ("above 0, δ = 1", "5", "reproduced")
    same = rows("one-budget-images")["vlt is as good as softmax attention"]
    assert (same["δ"], same["verdict"]) == ("within ±1", "as good as")


@pytest.mark.parametrize(
    ("name", "metric", "means", "words"),
    [
        ("one-budget-images", "accuracy", {"vlt": 0.9, "gka": 0.7}, {"vlt": "ahead", "gka": "behind"}),
        ("one-budget-text", "val_loss", {"gka": 0.7, "vlt": 0.9}, {"gka": "ahead", "vlt": "behind"}),
    ],
)
def test_what_is_not_as_good_is_ahead_or_behind(store, name, metric, means, words):
    keep(name, metric, means)
    found = rows(name)
    for arm, word in words.items():
        assert found[f"{arm} is as good as softmax attention"]["verdict"] == word


def test_a_claim_with_a_direction_that_fails_is_not_reproduced(store):
    keep("gka-pictures", "accuracy", {"gka": 0.9})
    assert rows("gka-pictures")["GKA is behind softmax attention"]["verdict"] == "not reproduced"


def test_below_five_seeds_nothing_is_decided(store):
    keep("gka-pictures", "accuracy", {"gka": 0.5}, seeds=range(4))
    behind = rows("gka-pictures")["GKA is behind softmax attention"]
    assert (behind["ours"][:3], behind["seeds"], behind["verdict"]) == ("+30", "4", "undecided")


@pytest.mark.parametrize(("clean", "source"), [(False, "measured"), (True, "paper")])
def test_only_runs_measured_from_a_clean_tree_count(store, clean, source):
    keep("gka-pictures", "accuracy", {})
    for run in results.load("gka-pictures"):
        results.save(replace(run, clean=clean, source=source))
    assert {row["verdict"] for row in rows("gka-pictures").values()} == {"not run"}


@pytest.mark.parametrize(
    ("claim", "arm"),
    [
        ("KArAt is ahead of softmax attention at the end", "softmax"),
        ("operators that all blocks share are behind those of their own (beside)", "universal"),
    ],
)
def test_arms_whose_sizes_differ_more_than_in_the_paper_decide_nothing(store, claim, arm):
    keep("karat-pictures", "accuracy", {arm: 0.4, "damped": 0.5})
    for times, verdict in ((1.2, "reproduced"), (1.5, "undecided")):
        for run in results.load("karat-pictures"):
            size = 1000 * (times if run.arm == "damped" else 1)
            results.save(replace(run, metrics={**run.metrics, "parameters": size}))
        assert rows("karat-pictures")[claim]["verdict"] == verdict


def full(recipe: str, arm: str, steps: int, metrics: dict[str, float], *, seed=0, **changes) -> None:
    """A record of a full run, as ``gkalib train --keep`` writes it."""
    own = {"experiment": recipe, "arm": arm, "scale": "full", "seed": seed, "metrics": metrics}
    results.save(record(recipe={"steps": steps, "data": "whole"}, **own | changes))


def test_full_runs_of_the_papers_recipe_decide_as_soon_as_all_arms_have_one(store):
    keep("gka-pictures", "accuracy", {"softmax": 0.86, "gka": 0.81})
    claim = "GKA is behind softmax attention"
    reduced = rows("gka-pictures")[claim]
    assert (reduced["scale"], reduced["seeds"]) == ("reduced: 2,000 steps", "5")
    full("gka-imagenet-tiny", "deit", 214_481, {"top1": 0.722, "parameters": 5.7e6})
    assert rows("gka-pictures")[claim] == reduced  # one arm of two
    full("gka-imagenet-tiny", "gka", 2_000, {"top1": 0.5})
    assert rows("gka-pictures")[claim] == reduced  # stopped short
    full("gka-imagenet-tiny", "gka", 214_481, {"top1": 0.715, "parameters": 4.4e6})
    one = rows("gka-pictures")[claim]
    assert (one["ours"], one["interval"], one["seeds"], one["verdict"]) == ("+0.7", "–", "1", "undecided")
    assert one["scale"] == "full: 4.4M to 5.7M parameters, 214,481 steps"
    for seed in range(1, 5):
        full("gka-imagenet-tiny", "deit", 214_481, {"top1": 0.722 + seed / 1e4}, seed=seed)
        full("gka-imagenet-tiny", "gka", 214_481, {"top1": 0.702 + seed / 1.1e4}, seed=seed)
    five = rows("gka-pictures")
    assert (five[claim]["seeds"], five[claim]["verdict"]) == ("5", "reproduced")
    assert five["attention without values is more accurate than softmax attention"]["scale"].startswith(
        "reduced"
    )


def test_our_own_claims_are_shown_and_not_reproduced(store):
    keep("gka-pictures", "accuracy", {"softmax": 0.9, "gka": 0.81, "gka-frozen-1": 0.7, "gka-frozen-4": 0.9})
    found = rows("gka-pictures")
    learned = "learned bandwidths are worth something beside gka-frozen-{}"
    assert [found[learned.format(one)]["verdict"] for one in (1, 4)] == ["shown", "not shown"]
    assert found["GKA is behind softmax attention"]["verdict"] == "reproduced"


def test_a_store_may_have_claims_of_its_own(store, tmp_path):
    for name in ("gka-pictures", "mine"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "claims.json").write_text(json.dumps({"contrasts": [], "checks": [], "arms": {}}))
        assert not claims(name).judged


def test_runs_of_another_recipe_do_not_count(store):
    keep("gka-pictures", "accuracy", {}, steps=7)
    assert {row["verdict"] for row in rows("gka-pictures").values()} == {"not run"}


def test_of_one_seed_on_two_devices_the_newest_counts(store):
    keep("gka-pictures", "accuracy", {"gka": 0.9}, device="a-card", year=2027)
    keep("gka-pictures", "accuracy", {"gka": 0.5}, device="cpu")
    assert rows("gka-pictures")["GKA is behind softmax attention"]["ours"].startswith("−10.")


def test_it_is_shown_as_text_and_in_a_notebook(store):
    keep("rbf-stories", "val_loss", {"rbf-susie": 0.7})
    table = claims("rbf-stories")
    assert "verdict: reproduced" in str(table) and "1.48 against 1.51" in str(table)
    page = table._repr_html_()
    assert page.count("<tr>") == len(table.judged) + 1 and "−0.10" in page


def test_what_states_nothing_is_refused():
    with pytest.raises(ValueError, match="claims: no experiment 'variants-digits' states what decides it"):
        claims("variants-digits")
