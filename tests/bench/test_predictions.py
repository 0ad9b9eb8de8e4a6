"""What is expected of a GPU, by formulas that are recomputed here, and as it stands in its dated file."""

import csv
from pathlib import Path

import pytest

from gkalib.bench import goals, passes, predictions, roofline
from gkalib.bench.cases import shapes
from gkalib.bench.passes import RATES, Pass, Program
from gkalib.gpu import survey

FOLDER = Path(__file__).resolve().parents[2] / "data" / "results" / "predictions"
NEWEST = max(FOLDER.glob("*.csv"))


def case_of(family: str, shape: str) -> dict:
    return next(case for case in shapes(family, "full", "cuda") if case["shape"] == shape)


def test_the_dated_file_holds_what_the_formulas_give():
    """As long as the programs are about those of that day; make it anew before a card has run, not after."""
    with NEWEST.open(encoding="utf-8", newline="") as lines:
        written = {(row["record"], row["metric"]): row for row in csv.DictReader(lines)}
    now = {(row["record"], row["metric"]): row for row in predictions.predictions()}
    assert written.keys() == now.keys() >= {(goal.record, goal.metric) for goal in goals.GOALS}
    for key, row in now.items():
        for column in ("predicted", "at_best"):
            again = f"python -m gkalib.bench.predictions {NEWEST.relative_to(FOLDER.parents[2])}"
            assert float(written[key][column]) == pytest.approx(float(row[column]), rel=0.03), again
        assert written[key]["goal"] == row["goal"] and row["arithmetic"] and row["design"]
    for goal in goals.GOALS:
        assert goal.predicted == float(written[goal.record, goal.metric]["predicted"])


def test_a_pass_by_hand():
    """A ViT-Ti forward: 768 heads of 197 tokens, in two blocks of 128 rows, of 3 · 64 + 16 columns."""
    actual = passes.ours(case_of("gka", "vit-ti"), "vit", "forward")
    pairs = 768 * 256 * (3 * 64 + 16)
    assert actual.products == pytest.approx(1e6 * 4 * 64 * pairs / RATES.products)
    assert actual.exponentials == pytest.approx(1e6 * pairs / RATES.exponentials)
    assert actual.memory == pytest.approx(1e6 * 2 * 768 * 197 * 64 * 2 / RATES.memory)
    where = ("gka_forward", 64, "bfloat16", "all", 197)
    (program,) = (row.report for row in survey.recorded().values() if row.where == where)
    lanes = survey.per_pair(program, 197) * 768 * 197**2
    assert actual.instructions == pytest.approx(1e6 * lanes / RATES.issue)
    assert actual.us == 1.5 + actual.products + actual.exponentials + actual.instructions
    assert actual.at_best == 1.5 + actual.products and actual.bound == "products"
    assert f"= {actual.us:.1f}" in str(actual)


@pytest.mark.parametrize(("window", "causal"), [(None, True), (512, True), (None, False)])
def test_blocks_are_those_that_a_mask_touches(window, causal):
    """Counted pair by pair: a block is whole if every pair of it is seen, and at the edge if some are."""
    case = {**case_of("gka", "text"), "window": window, "causal": causal}
    program = Program(128, 64, 0, 8, (1, 2), 0)
    whole, edges = passes.blocks(case, program)
    seen = roofline.visible(2048, 2048, causal=causal, window=window)
    touched = (whole + edges) * 128 * 64
    assert seen <= touched <= 1.25 * seen and whole * 128 * 64 <= seen
    if not causal:
        assert edges == 0 and touched == seen


def test_two_walks_cost_both_loops():
    case = case_of("gka", "text")
    one = Program(128, 64, 0, 8, (100, 200), 0)
    two = Program(128, 64, 0, 8, (100, 110, 200, 220), 0)
    whole, edges = passes.blocks(case, one)
    assert passes.walked(case, one)[1] == 256 * (100 * whole + 200 * edges)
    assert passes.walked(case, two, 2)[1] == 256 * (210 * whole + 420 * edges)
    assert passes.walked(case, one)[0] == 128 * 64 * (whole + edges)


def test_nothing_overlaps_but_memory_and_at_best_everything_does():
    one = Pass("", nodes=1.0, memory=10.0, products=4.0, exponentials=3.0, instructions=2.0, cache=1.5)
    assert (one.us, one.at_best) == (11.5, 11.0)
    assert Pass("", 1.0, 10.0, 4.0, 3.0, 2.0).us == 11.0


def test_a_host_that_is_slower_than_the_device_decides_a_small_model():
    rows = {(row["record"], row["metric"]): row for row in predictions.predictions()}
    small, large = (rows[f"models-{size}-training", "throughput_64"] for size in ("ti", "b"))
    assert small["bound"] == "host" and float(small["predicted"]) < float(small["at_best"])
    assert large["bound"] == "memory" and large["predicted"] == large["at_best"]
