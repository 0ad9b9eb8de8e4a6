"""Goals and the report of a GPU's runs, on runs that nobody made: every cell, and what holds a miss."""

import math
from pathlib import Path

import pytest

from gkalib import results
from gkalib.bench import goals, roofline
from gkalib.bench.cases import shapes
from gkalib.bench.catalog import benchmark
from gkalib.bench.fused import summarize
from gkalib.bench.goals import HEAD, report
from gkalib.cli import main

README = Path(__file__).resolve().parents[2] / "README.md"

CARD = "NVIDIA H100 80GB HBM3"
RATES = {"products": 800e12, "memory": 3e12, "exponentials": 3.7e12}


def case_of(family: str, shape: str) -> dict:
    (case,) = (case for case in shapes(family, "full", "cuda") if case["shape"] == shape)
    return case


def saved(
    experiment: str,
    arm: str,
    metrics: dict,
    rows: list,
    recipe: dict,
    *,
    commit: str = "a" * 12,
    device=CARD,
    load: float | None = None,
) -> None:
    record = results.Record(
        experiment=experiment, arm=arm, scale="full", recipe=recipe, seed=0, device=device, commit=commit,
        clean=True, date="2026-12-01T00:00:00+00:00", wall_seconds=60.0, metrics=metrics,
        versions={"torch": "2.11.0", "triton": "3.6.0"}, load=load,
    )  # fmt: skip
    results.save(record, rows=rows)


def row(arm: str, direction: str, ms: float | str, reason: str = "") -> dict:
    """A row as a measurement gives it, with the times that the report shows."""
    filled = {"arm": arm, "pass": direction, "ms": ms, "reason": reason, "bound": "memory", "peak_mib": 10.0}
    filled |= {"percent": 50.0 if ms else "", "ms_q10": ms, "ms_q90": ms, "tflops": 1.0, "percent_stated": ""}
    return filled | {"clock_mhz": 1755.0, **RATES}


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A store of made-up runs: one shape, one model, correctness in one type."""
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path))
    rows = [
        row("fused", "forward", 0.02), row("fused", "backward", 0.06), row("fused", "both", 0.08),
        row("sdpa-cudnn", "forward", 0.04), row("sdpa-cudnn", "both", 0.086),
        row("sdpa-flash", "forward", 0.05),
        row("flex", "forward", "", "OutOfMemoryError: CUDA out of memory"),
    ]  # fmt: skip
    saved("bench", "gka-vit-ti", summarize(rows), rows, case_of("gka", "vit-ti"))
    pictures = [
        {"arm": arm, "batch": batch, "reason": "", "images_per_second": rate, "ms": 1.0, "peak_mib": mib}
        for arm, rate, mib in (("deit-sdpa-cudnn", 1000.0, 100.0), ("gka-fused", 1100.0, 80.0))
        for batch in (64, 128)
    ]
    metrics = {"throughput_64": 1.1, "memory_64": 0.8, "throughput_128": 1.1, "memory_128": 0.8}
    saved("bench", "models-ti-training", metrics, pictures, {"device": "cuda"})
    for operation, error in (("gka", 0.002), ("rbf", 0.003)):
        metrics = {
            "error_bfloat16": error, "gradient_bfloat16": 0.004, "relative_error_bfloat16": 1.5,
            "relative_gradient_bfloat16": 2.5, "cases": 14, "rows": 42, "wrong": int(operation == "rbf"),
        }  # fmt: skip
        saved("correctness", f"{operation}-bfloat16", metrics, [], {"operation": operation}, commit="b" * 12)
    return tmp_path


def cells(label: str, direction: str) -> dict[str, str]:
    """The cells of a row of the table by their heads."""
    (line,) = (line for line in report().splitlines() if line.startswith(f"| {label} | {direction}"))
    return dict(zip(HEAD, (cell.strip() for cell in line.strip("|").split("|")), strict=True))


def predicted(record: str, metric: str) -> str:
    """What was predicted for a goal, as the table prints it."""
    (goal,) = (goal for goal in goals.GOALS if (goal.record, goal.metric) == (record, metric))
    return f"{goal.predicted:.2f}"


def test_a_row_has_ours_each_rival_the_floor_and_the_goal(store):
    actual = cells("gka-vit-ti", "forward")
    assert actual["ours, ms"] == "0.02" and actual["sdpa-cudnn"] == "0.04 (2.00×)"
    assert actual["sdpa-flash"] == "0.05 (2.50×)" and actual["flex"] == "OutOfMemoryError"
    assert actual["eager"] == "" and actual["best SDPA"] == "2.00×"
    assert (actual["% of floor"], actual["bound"]) == ("50", "memory")
    told = predicted("gka-vit-ti", "ratio_sdpa_forward")
    assert actual["goal"] == f"forward, against SDPA ≥ 1.5×, predicted {told}: 2.00 met"


def test_a_goal_that_is_missed_names_what_holds_it(store):
    told = cells("gka-vit-ti", "both")["goal"]
    expected = predicted("gka-vit-ti", "ratio_sdpa_both")
    assert told.startswith(f"against SDPA ≥ 1.3×, predicted {expected}: 1.07 missed, held by memory, ")
    share = int(told.split("%")[0].split()[-1])
    case, rates = case_of("gka", "vit-ti"), roofline.Rates(*RATES.values())
    parts = [goals.designed(case, direction, "gka", rates) for direction in ("forward", "backward")]
    assert share == round(100 * sum(part.seconds for part in parts) / 0.08e-3)
    slow = goals.bottleneck(case, "both", "gka", rates, 1e-3)
    assert slow == "no counted rate: memory, the longest, is 6% of the time"


def test_what_has_no_record_is_said_to_be_missing(store):
    assert cells("rbf-text", "forward")["ours, ms"] == "not run"
    assert cells("rbf-text", "forward")["goal"].endswith("not run")
    text = report([("gpa-dickens", "rope")])
    assert "| float16 | not run |" in text and "| gpa-dickens rope | not run |" in text


def test_models_correctness_and_surroundings(store):
    actual = cells("models-ti-training", "batch 64")
    assert (actual["ours, ms"], actual["sdpa-cudnn"], actual["best SDPA"]) == ("1100", "1000", "1.10×")
    rate, memory = (predicted("models-ti-training", name) for name in ("throughput_64", "memory_64"))
    assert f"images a second ≥ 1.15×, predicted {rate}: 1.10 missed" in actual["goal"]
    assert f"memory ≤ 0.85×, predicted {memory}: 0.80 met" in actual["goal"]
    text = report()
    assert "| bfloat16 | 28 | 84 | 1 | 0.004 (rbf, gradient) | 2.5 (rbf, gradient) |" in text
    assert f"device: {CARD}  " in text and f"commit: {'a' * 12}, {'b' * 12}  " in text
    assert "torch: 2.11.0  " in text and "triton: 3.6.0  " in text


def test_what_was_timed_on_a_busy_machine_says_so(store):
    for arm, load in (("gka-vit-s", 0.9), ("gka-vit-b", 0.1)):
        saved("bench", arm, {}, [], case_of("gka", arm.removeprefix("gka-")), load=load)
    saved("bench", "models-s-training", {}, [], {"device": "cuda"}, load=0.9)
    marked = {line.split("|")[1].strip() for line in report().splitlines() if ", busy |" in line}
    assert marked == {"gka-vit-s, busy", "models-s-training, busy"}


def test_the_command_prints_it_with_nothing_recorded(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path))
    assert main(["reproduce", "--report"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("No run on a GPU is recorded.")
    assert printed.count("not run") > len(goals.GOALS)


def test_nothing_is_predicted_where_no_predictions_lie(monkeypatch, tmp_path):
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path))
    monkeypatch.setattr(goals.results, "repository", lambda: tmp_path)
    assert goals._predicted.__wrapped__() == {}


def test_every_goal_was_predicted_before_it_was_measured():
    for goal in goals.GOALS:
        assert goal.predicted is not None and math.isfinite(goal.predicted) and goal.predicted > 0


@pytest.mark.parametrize(
    ("family", "shape", "instructions"),
    [("gka", "vit-ti", 6.2), ("rbf", "text", None), ("gpa", "text", None), ("karat", "vit-ti", None)],
)
def test_instructions_are_those_of_the_compiled_programs(family, shape, instructions):
    case = case_of(family, shape)
    actual = [goals.instructions(case, direction) for direction in ("forward", "backward")]
    assert 4 < actual[0] < 25 and actual[0] < actual[1] < 80
    if instructions:
        assert actual[0] == pytest.approx(instructions, abs=0.3)
    assert goals.instructions({**case, "width": 17}, "forward") == 0


def test_goals_read_runs_of_a_gpu_and_no_others(tmp_path, monkeypatch):
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path))
    assert {outcome.state for outcome in goals.reached()} == {"not run yet"}
    saved("bench", "gka-vit-ti", {"ratio_sdpa_forward": 1.6, "ratio_sdpa_both": 1.2}, [], {})
    saved("bench", "gka-vit-s", {"ratio_sdpa_forward": 1.6}, [], {}, device="2 cores x86_64")
    saved("bench", "decode-gka", {"ratio_sdpa_forward": 2.0}, [], {})
    state = {
        (outcome.goal.record, outcome.goal.metric): outcome
        for outcome in goals.reached()
        if outcome.value is not None
    }
    assert {key: outcome.state for key, outcome in state.items()} == {
        ("gka-vit-ti", "ratio_sdpa_forward"): "met",
        ("gka-vit-ti", "ratio_sdpa_both"): "missed",
        ("decode-gka", "ratio_sdpa_forward"): "met",
    }
    assert state["decode-gka", "ratio_sdpa_forward"].value == 0.5
    lines = goals.markdown().splitlines()
    assert f"| 12 | 2 on {CARD} | 1 |" in lines[2] and "| 9 | not run yet |  |" in lines[3]


def test_every_goal_names_a_shape_and_a_command():
    for goal in goals.GOALS:
        name, _, shape = goal.record.partition("-")
        assert shape in [case["shape"] for case in benchmark(name).shapes("full", "cuda")]
        assert goal.command == f"python -m gkalib bench {name} {shape} --device cuda --keep"
    assert str(goals.GOALS[0]) == "≥ 1.5×"
    assert {goal.benchmark for goal in goals.GOALS} == goals.WORDS.keys()


def test_the_readme_shows_what_has_been_run():
    printed = README.read_text(encoding="utf-8").split("<!-- speed -->\n")[1].split("\n<!-- /speed -->")[0]
    assert printed == goals.markdown()
