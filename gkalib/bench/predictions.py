"""What the goals are expected to show, written down before anything was measured on a GPU.

``python -m gkalib.bench.predictions`` prints what the counts of today give. What was predicted on 2026-11-22
lies in data/results/predictions and does not change, so that outcomes can stand beside it.
"""

import csv
import io
from functools import cache
from pathlib import Path

from gkalib.bench.bounds import designed
from gkalib.bench.goals import GOALS, Goal
from gkalib.bench.models import SIZES
from gkalib.bench.registry import Case
from gkalib.bench.roofline import SIZE, Rates, work
from gkalib.bench.shapes import shapes
from gkalib.results import folder

FILE = "predictions/2026-11-22.csv"
RATES = Rates(products=790e12, memory=3.0e12, exponentials=16 * 132 * 1.755e9)
"""An H100 as others have measured it: a copy, a large product."""
LAUNCH = 2e-6  # seconds that a program adds in a graph
LAUNCHES = {"gka": (1, 2), "rbf": (2, 4), "gpa": (1, 3), "karat": (3, 6), "decode": (2, 0)}
BUS, CORES = 0.85, 0.75  # of the rates, what a good program of Triton reaches
# Softmax attention by cuDNN: operations a second that others publish, forward and backward, by width and mask
SDPA = {(64, False): (350e12, 280e12), (64, True): (340e12, 250e12), (128, True): (480e12, 370e12)}
SHORT = {(64, False): (300e12, 220e12)}  # of less than 512 tokens
SDPA_BUS = 0.75


def of(goal: Goal) -> float | None:
    """What was predicted for a goal, read as the goal reads it; None if nothing was."""
    return _written().get((goal.record, goal.metric))


@cache
def _written() -> dict[tuple[str, str], float]:
    path = folder() / FILE
    if not path.exists():
        path = Path(__file__).resolve().parents[2] / "data" / "results" / FILE
    with path.open(encoding="utf-8", newline="") as file:
        return {(row["record"], row["metric"]): float(row["predicted"]) for row in csv.DictReader(file)}


def ours(case: Case, direction: str) -> tuple[float, str]:
    """Seconds of a fused pass and what binds it.

    A program hides memory behind arithmetic. Products and exponentials of one group of warps take turns, and
    where two programs share a processor half of the shorter hides; issue is the least that both can take.
    """
    if direction == "both":
        parts = [ours(case, one) for one in ("forward", "backward")]
        return sum(seconds for seconds, _ in parts), max(parts)[1]
    kind = case["family"] if case["family"] in ("gka", "karat") else "softmax"
    need = designed(case, direction, kind, RATES)
    found = {
        "memory": need.memory / BUS,
        "products": (need.products + need.exponentials / 2) / CORES,
        "exponentials": (need.exponentials + need.products / 2) / CORES,
        "issue": need.issue / CORES,
    }
    bound = max(found, key=found.__getitem__)
    decoding = case["queries"] != case["keys"]
    count = LAUNCHES["decode" if decoding else case["family"]][direction == "backward"]
    return found[bound] + LAUNCH * count, bound


def sdpa(case: Case, direction: str) -> float:
    """Seconds of PyTorch's fastest softmax attention; a window is not skipped by it."""
    if direction == "both":
        return sdpa(case, "forward") + sdpa(case, "backward")
    done = work({**case, "window": None}, direction, "softmax")
    moved = done.bytes / (SDPA_BUS * RATES.memory)
    if case["queries"] != case["keys"]:
        return moved + 2 * LAUNCH
    known = SHORT if case["keys"] < 512 and not case["causal"] else SDPA
    rate = known[case["width"], case["causal"]][direction == "backward"]
    return max(moved, done.flops / rate) + LAUNCH * (1 if direction == "forward" else 3)


def _eager(case: Case) -> float:
    """Seconds of a row operator in plain PyTorch: matrices of all pairs that cross the bus, both passes."""
    matrix = 4 * work(case, "forward", "karat").pairs
    return 50 * matrix / (0.8 * RATES.memory)


def _step(size: str, batch: int, *, gka: bool, training: bool) -> float:
    """Seconds of a step of a whole model: its products, what its activations move, and attention."""
    _, width, heads = SIZES[size]
    case = next(one for one in shapes("gka", "full", "cuda") if one["heads"] == heads)
    case = {**case, "batch": batch}
    tokens = 12 * batch * case["keys"]
    passes = 3 if training else 1
    products = 2 * (10 if gka else 12) * width**2 * tokens * passes / (0.45 * RATES.products)
    moved = (68 if gka else 80) * width * tokens * passes / (0.7 * RATES.memory)
    direction = "both" if training else "forward"
    attention = ours(case, direction)[0] if gka else sdpa(case, direction)
    return products + moved + 12 * attention


def predicted(goal: Goal) -> tuple[float, float, float, str]:
    """What a goal is expected to read, our seconds, the rival's, and what binds ours."""
    if goal.benchmark == "models":
        return _model(goal)
    family, _, shape = goal.record.partition("-")
    case = next(one for one in shapes(family, "full", "cuda") if one["shape"] == shape)
    direction = goal.metric.rpartition("_")[2]
    mine, bound = ours(case, direction)
    if goal.metric.startswith("memory"):
        # query, key, value, out, their gradients and a number a row; the operator keeps r numbers of each row
        return (8 + 4 * 16 * 4 / (case["width"] * SIZE[case["dtype"]])) / 9, mine, 0.0, bound
    rival = {
        "sdpa": lambda: sdpa(case, direction),
        "padded": lambda: 1.3 * sdpa(case, direction) + 10e-6,
        "fused_no_table": lambda: mine / 1.35,  # nine more instructions a score in one of the two loops
        "flex": lambda: 2.6 * mine,  # two loops without shared norms, and an atomic addition for each score
        "eager": lambda: _eager(case),
    }[goal.metric.removeprefix("ratio_").rpartition("_")[0]]()
    return (mine / rival if goal.inverse else rival / mine), mine, rival, bound


def _model(goal: Goal) -> tuple[float, float, float, str]:
    size, _, mode = goal.record.removeprefix("models-").partition("-")
    batch = goal.metric.rpartition("_")[2]
    training, count = mode == "training", 256 if batch == "best" else int(batch)
    mine, rival = (_step(size, count, gka=gka, training=training) for gka in (True, False))
    if goal.metric.startswith("memory"):
        return 0.88, mine, rival, "memory"
    return rival / mine, mine, rival, "memory"


def text() -> str:
    """The predictions of today's counts, as the file has them."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("record", "metric", "goal", "predicted", "ours_us", "rival_us", "bound"))
    for goal in GOALS:
        value, mine, rival, bound = predicted(goal)
        cells = (f"{value:.3g}", f"{1e6 * mine:.4g}", f"{1e6 * rival:.4g}" if rival else "", bound)
        writer.writerow((goal.record, goal.metric, str(goal), *cells))
    return out.getvalue()


if __name__ == "__main__":
    print(text(), end="")
