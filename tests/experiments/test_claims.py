"""The table of an experiment's claims: what was run and what was not, numbers in units, seeds counted."""

import random

import pytest

from gkalib import results
from gkalib.experiments import experiment
from gkalib.experiments.claims import HEADER, claims


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path))


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
    for study in experiment(name)[0]:
        for seed in seeds:
            noise = random.Random(f"{study.arm}{seed}").gauss(0, spread)
            results.save(
                results.Record(
                    experiment=name,
                    arm=study.arm,
                    scale="reduced",
                    recipe=study.recorded() | changes,
                    seed=seed,
                    device=device,
                    commit="0" * 12,
                    clean=True,
                    date=f"{year}-01-31T00:00:00+00:00",
                    wall_seconds=1,
                    metrics={metric: means.get(study.arm, 0.8) + noise},
                )
            )


def rows(name: str) -> dict[str, dict[str, str]]:
    return {row[0]: dict(zip(HEADER, row, strict=True)) for row in claims(name).cells}


def test_without_runs_nothing_is_claimed(store):
    for row in claims("gka-pictures").cells:
        assert row[2:4] == ["–", "–"] and row[5:] == ["0", "not run"]


def test_what_runs_did_not_measure_has_no_interval(store):
    keep("gpa-novels", "val_loss", {"both": 0.7})
    found = rows("gpa-novels")
    assert found["a head with a flat bank can go (both)"]["interval"] == "–"
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


def test_runs_of_another_recipe_do_not_count(store):
    keep("gka-pictures", "accuracy", {}, steps=7)
    assert {row["verdict"] for row in rows("gka-pictures").values()} == {"not run"}


def test_of_one_seed_on_two_devices_the_newest_counts(store):
    keep("gka-pictures", "accuracy", {"gka": 0.9}, device="a-card", year=2027)
    keep("gka-pictures", "accuracy", {"gka": 0.5}, device="cpu")
    assert rows("gka-pictures")["GKA is behind softmax attention"]["ours"].startswith("−10.")


def test_it_is_shown_as_text_and_in_a_notebook(store):
    keep("rbf-stories", "val_loss", {"rbf-susie": 0.7}, seeds=range(2))
    table = claims("rbf-stories")
    assert "verdict: reproduced" in str(table) and "1.48 against 1.51" in str(table)
    page = table._repr_html_()
    assert page.count("<tr>") == len(table.judged) + 1 and "−0.10" in page


def test_what_states_nothing_is_refused():
    with pytest.raises(ValueError, match="claims: no experiment 'variants-digits' states what decides it"):
        claims("variants-digits")
