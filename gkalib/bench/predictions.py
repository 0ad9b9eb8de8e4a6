"""What each goal on a GPU will come to, by arithmetic, written down before anything has run there.

``python -m gkalib.bench.predictions`` prints a line a goal; with a file's name it writes them there. A
prediction is of passes as `gkalib.bench.passes` counts them, with nothing overlapping but memory;
``at_best`` is the same with everything at once.
"""

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gkalib.bench.cases import MODELS, Case, shapes
from gkalib.bench.goals import GOALS, Goal
from gkalib.bench.passes import (
    ATOMICS,
    FLEX,
    NODE,
    RATES,
    SDPA,
    STATED_RATES,
    Pass,
    ours,
    pairs_of,
    sdpa,
    softmax,
)
from gkalib.bench.roofline import work

EAGER = 30, 60
"""How often an n × n float32 tensor crosses the bus in KArAt's definition, forward and backward."""
Prediction = dict[str, Any]


def _time(
    goal: Goal, passes: list[Pass], rival: float, words: str, *, at_best: float | None = None
) -> Prediction:
    """A prediction of a ratio of times; ``at_best`` is the rival's where its time is ours too."""
    mine, best = sum(each.us for each in passes), sum(each.at_best for each in passes)
    ratios = rival / mine, (at_best or rival) / best
    ratios = [1 / ratio for ratio in ratios] if goal.inverse else ratios
    return {
        "record": goal.record,
        "metric": goal.metric,
        "goal": str(goal),
        "predicted": f"{ratios[0]:.3g}",
        "at_best": f"{ratios[1]:.3g}",
        "ours_us": f"{mine:.4g}",
        "rival_us": f"{rival:.4g}",
        "bound": max(passes, key=lambda each: each.us).bound,
        "design": "; ".join(each.design for each in passes),
        "arithmetic": f"{' and '.join(map(str, passes))}; {words} {rival:.1f}",
    }


def _attention(goal: Goal) -> Prediction:
    benchmark, _, shape = goal.record.partition("-")
    case = next(case for case in shapes(benchmark, "full", "cuda") if case["shape"] == shape)
    direction = goal.metric.rpartition("_")[2]
    if benchmark == "decode":
        return _decode(goal, case)
    family = {"gka": "vit" if shape.startswith("vit") else "text"}.get(benchmark, benchmark)
    directions = ("forward", "backward") if direction == "both" else (direction,)
    passes = [ours(case, family, each) for each in directions]
    if goal.metric.startswith("ratio_sdpa"):
        words = "softmax attention" if case["window"] else "SDPA"
        return _time(goal, passes, softmax(case, direction), words)
    if goal.metric.startswith("ratio_padded"):
        # SDPA at the next width, and copies of three tensors each way
        wide = 4 * case["width"] * pairs_of(case) * 1.5  # 1.5: of 96 numbers a row, or 192
        rates = SDPA[case["width"], True]
        copies = 6 * 2 * case["batch"] * case["heads"] * case["keys"] * case["width"] * 2 * 2 / RATES.memory
        return _time(goal, passes, 1e6 * (wide / rates[0] + 2.5 * wide / rates[1] + copies), "padded")
    if goal.metric.startswith("ratio_fused_no_table"):
        plain = ours(case, "plain", "backward")
        return _time(goal, passes, plain.us, f"without {plain}; that", at_best=plain.at_best)
    if goal.metric.startswith("ratio_flex"):
        own = 1e6 * pairs_of(case) / ATOMICS
        return _time(
            goal, passes, sdpa(case, "backward") / FLEX[1] + own, f"flex with {own:.0f} of additions"
        )
    if goal.metric.startswith("ratio_eager"):
        square = 4 * case["batch"] * case["heads"] * case["queries"] * case["keys"]
        return _time(goal, passes, 1e6 * sum(EAGER) * square / RATES.memory, f"{sum(EAGER)} crossings")
    return _row_memory(goal, case, passes)


def _decode(goal: Goal, case: Case) -> Prediction:
    """A step of decoding: nothing but the cache counts, once for keys and values that are one tensor."""
    times = [1e6 * work(case, "forward", kind).bytes / RATES.memory for kind in ("gka", "softmax")]
    mine, rival = (Pass("loads ahead, two nodes", 2e6 * NODE, time, 0.0, 0.0, 0.0) for time in times)
    return _time(goal, [mine], rival.us, "SDPA, two tensors,")


def _row_memory(goal: Goal, case: Case, passes: list[Pass]) -> Prediction:
    """KArAt's peak beside softmax attention's: out and three gradients; 12 float32 features a row, twice."""
    tokens = case["batch"] * case["heads"] * case["queries"]
    tensor, features, sums = 2 * tokens * case["width"], 4 * tokens * 12, 4 * tokens
    mine, rival = 4 * tensor + 2 * features + features // 2, 4 * tensor + sums
    row = _time(goal, passes, float("nan"), "")
    return row | {
        "predicted": f"{mine / rival:.3g}",
        "at_best": f"{4 * tensor / rival:.3g}",
        "rival_us": "",
        "bound": "memory",
        "arithmetic": f"{mine / 2**20:.0f} MiB: out, three gradients, features of 12 numbers; "
        f"{rival / 2**20:.0f} MiB: out, three gradients, sums",
    }


HOST, HOST_LAYER = 2.5e-3, 30e-6
"""Seconds in which a host asks for a compiled training step of twelve layers, and more a layer of ours."""
LINEAR = 0.6 * STATED_RATES.products
"""Operations a second of the products of a ViT's layers."""
CROSSED = {"deit": 40, "gka": 38}
"""How often a [tokens, width] tensor of 16 bits crosses the bus in a layer without its attention."""
WEIGHTS = {"deit": 12, "gka": 10}
"""A layer's weights in squares of the width: two projections less of four."""
SAVED = {"deit": 18, "gka": 16}
"""Tensors [tokens, width] that a layer keeps for its backward pass: two projections less."""
DEPTH, TOKENS = 12, 197


def step(size: str, batch: int, arm: str, *, training: bool) -> tuple[float, float]:
    """Seconds of a device for a step of a whole model, and of its attention alone in it."""
    _, width, _ = MODELS[size]
    tokens, rounds = batch * TOKENS, 3 if training else 1
    linear = 2 * WEIGHTS[arm] * width**2 * tokens / LINEAR
    moved = CROSSED[arm] * 2 * tokens * width / RATES.memory
    case = {**next(c for c in shapes("gka", "full", "cuda") if c["shape"] == f"vit-{size}"), "batch": batch}
    directions = ("forward", "backward") if training else ("forward",)
    if arm == "gka":
        attention = sum(ours(case, "vit", each).us for each in directions) * 1e-6
    else:
        attention = sum(sdpa(case, each) for each in directions) * 1e-6
    return DEPTH * (rounds * (linear + moved) + attention), DEPTH * attention


def _model(goal: Goal) -> Prediction:
    size, mode = goal.record.removeprefix("models-").split("-")
    what, _, batch = goal.metric.rpartition("_")
    training = mode == "training"
    images = int(batch) if batch.isdigit() else 512
    if what == "memory":
        return _model_memory(goal, size, images)
    mine, rival = (step(size, images, arm, training=training)[0] for arm in ("gka", "deit"))
    host = (HOST + DEPTH * HOST_LAYER, HOST) if training else (0.0, 0.0)
    slow = [max(device, asked) for device, asked in zip((mine, rival), host, strict=True)]
    words = "; ".join(
        f"{name} max({1e6 * device:.0f} device, {1e6 * asked:.0f} host)"
        for name, device, asked in zip(("ours", "DeiT"), (mine, rival), host, strict=True)
    )
    return {
        "record": goal.record,
        "metric": goal.metric,
        "goal": str(goal),
        "predicted": f"{slow[1] / slow[0]:.3g}",
        "at_best": f"{rival / mine:.3g}",
        "ours_us": f"{1e6 * slow[0]:.4g}",
        "rival_us": f"{1e6 * slow[1]:.4g}",
        "bound": "host" if slow[0] > mine else "memory",
        "design": "one projection for three; at best as one graph",
        "arithmetic": words,
    }


def _model_memory(goal: Goal, size: str, batch: int) -> Prediction:
    """Peaks in training: what layers keep, and 16 bytes a weight for itself, its gradient and two moments."""
    _, width, _ = MODELS[size]
    peaks = [
        DEPTH * (SAVED[arm] * 2 * batch * TOKENS * width + 16 * WEIGHTS[arm] * width**2)
        for arm in ("gka", "deit")
    ]
    return {
        "record": goal.record,
        "metric": goal.metric,
        "goal": str(goal),
        "predicted": f"{peaks[0] / peaks[1]:.3g}",
        "at_best": f"{peaks[0] / peaks[1]:.3g}",
        "ours_us": "",
        "rival_us": "",
        "bound": "memory",
        "design": "one projection for three",
        "arithmetic": f"{peaks[0] / 2**20:.0f} MiB: {SAVED['gka']} tensors a layer, 16 bytes a weight; "
        f"{peaks[1] / 2**20:.0f} MiB: {SAVED['deit']}",
    }


def _also() -> Iterator[Prediction]:
    """What no goal asks for: five products backward under a causal mask, in no fixed order."""
    goal = next(goal for goal in GOALS if (goal.record, goal.metric) == ("gka-text", "ratio_sdpa_both"))
    case = next(case for case in shapes("gka", "full", "cuda") if case["shape"] == "text")
    passes = [ours(case, "text", direction) for direction in ("forward", "unordered")]
    row = _time(goal, passes, sdpa(case, "both"), "SDPA")
    yield row | {"metric": "ratio_sdpa_both_unordered", "goal": ""}


def predictions() -> list[Prediction]:
    """A row for each goal, in their order, and what is asked for beside them."""
    rows = [_model(goal) if goal.benchmark == "models" else _attention(goal) for goal in GOALS]
    return [*rows, *_also()]


def write(path: Path) -> None:
    """Write them as a table of commas."""
    rows = predictions()
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    if sys.argv[1:]:
        write(Path(sys.argv[1]))
    for row in predictions():
        cells = (
            f"{row['record']:<18}",
            f"{row['metric']:<30}",
            f"{row['goal']:>7}",
            f"{row['predicted']:>6}",
        )
        print(*cells, f"(at best {row['at_best']})", row["arithmetic"])
