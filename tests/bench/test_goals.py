"""Goals are rows of a table; they are reached by full runs on a GPU and no others."""

import math
from pathlib import Path

from gkalib import results
from gkalib.bench import goals
from gkalib.bench.run import benchmark
from tests.records import record

README = Path(__file__).resolve().parents[2] / "README.md"
CARD = "NVIDIA H100 80GB HBM3"


def saved(arm: str, *, device=CARD, scale="full", **metrics: float) -> None:
    results.save(record(experiment="bench", arm=arm, scale=scale, recipe={}, device=device, metrics=metrics))


def test_goals_read_full_runs_of_a_gpu_and_no_others(store):
    assert all(found is None for _, found in goals.reached())
    saved("gka-vit-ti", ratio_sdpa_forward=1.6, ratio_sdpa_both=1.2)
    saved("gka-vit-s", device="2 cores x86_64", ratio_sdpa_forward=1.6)
    saved("gka-vit-b", scale="reduced", ratio_sdpa_forward=1.6)
    saved("decode-gka", ratio_sdpa_forward=2.0)
    saved("models-ti-training", memory_64=0.9)
    found = {(goal.record, goal.metric): (goal, *number) for goal, number in goals.reached() if number}
    assert {key: (value, goal.met(value), device) for key, (goal, value, device) in found.items()} == {
        ("gka-vit-ti", "ratio_sdpa_forward"): (1.6, True, CARD),
        ("gka-vit-ti", "ratio_sdpa_both"): (1.2, False, CARD),
        ("decode-gka", "ratio_sdpa_forward"): (0.5, True, CARD),
        ("models-ti-training", "memory_64"): (0.9, False, CARD),
    }
    lines = goals.markdown().splitlines()
    assert f"| 12 | 2 on {CARD} | 1 |" in lines[2] and "| 9 | not run yet |  |" in lines[3]
    lines = goals.listing().splitlines()
    assert lines[0].endswith("1.6, met") and lines[1].endswith("1.2, missed")


def test_every_goal_names_a_shape_and_was_predicted_before_it_was_measured():
    told = {
        (row["record"], row["metric"]): float(row["predicted"]) for row in goals._rows("predictions/*.csv")
    }
    assert len(goals.goals()) == 47
    for goal in goals.goals():
        name, _, shape = goal.record.partition("-")
        recipe = benchmark(name).shapes("full", "cuda")[shape]
        assert set(goal.arms.split()) <= set(benchmark(name).arms(recipe))
        assert math.isfinite(told[goal.record, goal.metric]) and told[goal.record, goal.metric] > 0
    assert {goal.benchmark for goal in goals.goals()} == goals.WORDS.keys()


def test_outside_of_the_repository_there_are_none(monkeypatch, tmp_path):
    monkeypatch.setattr(goals.results, "repository", lambda: tmp_path)
    assert goals.goals() == [] and goals.listing() == ""


def test_the_readme_shows_what_has_been_run():
    printed = README.read_text(encoding="utf-8").split("<!-- speed -->\n")[1].split("\n<!-- /speed -->")[0]
    assert printed == goals.markdown()
