"""What chapter 21 proves of floors, and the predictions that it explains."""

import csv

import pytest

from gkalib import results
from gkalib.bench.problems import problem, shapes, softmax
from gkalib.bench.roofline import STATED, Rates, Work, floor, work
from gkalib.gpu import survey

VIT = shapes("gka", "full", "cuda")["vit-ti"]


def both(**sizes):
    """Softmax attention on three tensors, and Gaussian attention on one."""
    one = problem(VIT | sizes, device="meta")
    return softmax(one), one


@pytest.mark.parametrize("tokens", [16, 150, 197, 400, 500, 700, 4000])
def test_the_gain_of_one_tensor(tokens):
    for rates in (STATED["H100"], STATED["H200"], Rates(products=1e12, memory=1e12, exponentials=1e9)):
        three, one = (floor(work(each, "forward"), rates) for each in both(queries=tokens, keys=tokens))
        a, m = max(one.products, one.exponentials), one.memory / 2
        gain = three.seconds / one.seconds
        assert gain == pytest.approx(max(a, 4 * m) / max(a, 2 * m))
        assert (gain == pytest.approx(2)) == (a <= 2 * m * (1 + 1e-9))
        assert (gain == pytest.approx(1)) == (a >= 4 * m * (1 - 1e-9))
        assert 1 <= gain <= 2


@pytest.mark.parametrize(("shape", "heads"), [("vit-ti", 3), ("vit-s", 6), ("vit-b", 12)])
def test_predictions_are_those_written_down(shape, heads):
    """Nodes, and the longer of memory and what one group of warps does in turn, in the newest table."""
    paths = sorted((results.repository() / "data" / "results" / "predictions").glob("*.csv"))
    with paths[-1].open(encoding="utf-8", newline="") as lines:
        (row,) = (
            row
            for row in csv.DictReader(lines)
            if (row["record"], row["metric"]) == (f"gka-{shape}", "ratio_sdpa_forward")
        )
    rates, kernel = STATED["H200"], survey.recorded()["gka_forward 64 bfloat16 all 197 smooth_forward"].report
    rows, (narrow, wide) = 256 * heads, kernel.loops
    pairs, threads = rows * 256 * 208, 32 * kernel.warps
    done = Work(pairs, 256 * pairs, pairs, 4 * rows * 197 * 64, rows * threads * (6 * wide + 2 * narrow))
    reached = Rates(0.8 * rates.products, 0.9 * rates.memory, rates.exponentials, rates.issue)
    least = floor(done, reached)
    computing = (least.products, least.exponentials, least.issue)
    ours, best = (1.5e-6 + max(least.memory, each) for each in (sum(computing), max(computing)))
    rival = 256 * rows * 197**2 / 184e12 + 1.5e-6
    assert [1e6 * ours, 1e6 * rival] == pytest.approx(
        [float(row["ours_us"]), float(row["rival_us"])], rel=1e-3
    )
    assert [rival / ours, rival / best] == pytest.approx(
        [float(row["predicted"]), float(row["at_best"])], rel=5e-3
    )
