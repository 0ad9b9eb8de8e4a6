"""What the fused operations are to reach on a GPU, what runs have shown, and what holds those that missed it.

``python -m gkalib.bench.goals`` prints the table of the README, ``report`` that of all runs on a GPU.
"""

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import final

from gkalib import results
from gkalib.bench.cases import FAMILIES, MODELS, TRAINING, Case, Row, shapes
from gkalib.bench.roofline import Floor, Rates, floor, padding, work

PACKAGE = Path(__file__).resolve().parents[1]

WORDS = {
    "gka": "Gaussian kernel attention against PyTorch's fastest attention",
    "rbf": "RBF attention against the same, and against the padded form",
    "gpa": "a lag table with its gradient against none, and FlexAttention",
    "karat": "a learned row operator against eager, and its memory",
    "decode": "decoding from a cache of one tensor",
    "models": "whole vision transformers against DeiT",
}


@final
@dataclass(frozen=True)
class Goal:
    """One number to reach.

    Args:
        record: the arm of the run in ``data/results/bench`` that holds it, ``<benchmark>-<shape>``.
        metric: of that run; a ratio of times is the rival's over ours.
        words: what is compared.
        bound: what the number, or where ``inverse`` its inverse, should be.
        at_most: whether the bound is an upper one.
        inverse: whether it is read as our time over the rival's.
    """

    record: str
    metric: str
    words: str
    bound: float
    at_most: bool = False
    inverse: bool = False

    @property
    def benchmark(self) -> str:
        return self.record.partition("-")[0]

    @property
    def command(self) -> str:
        """What measures it."""
        return command(self.record.replace("-", " ", 1))

    @property
    def predicted(self) -> float | None:
        """What was predicted for it before anything was measured on a GPU; None if nothing was."""
        return _predicted().get((self.record, self.metric))

    def __str__(self) -> str:
        return f"{'≤' if self.at_most else '≥'} {self.bound:g}×"

    def met(self, value: float) -> bool:
        """Whether a number is on the right side of the bound."""
        return value <= self.bound if self.at_most else value >= self.bound


def command(words: str) -> str:
    """What measures a benchmark, or a shape of it, on a card."""
    return f"python -m gkalib bench {words} --device cuda --keep"


def _goals() -> Iterator[Goal]:
    for size in ("ti", "s", "b"):
        yield Goal(f"gka-vit-{size}", "ratio_sdpa_forward", "forward, against SDPA", 1.5)
        yield Goal(f"gka-vit-{size}", "ratio_sdpa_both", "forward and backward, against SDPA", 1.3)
    for shape in ("text", "text-1024", "text-512"):
        yield Goal(f"gka-{shape}", "ratio_sdpa_forward", "forward, against SDPA", 1.0)
        yield Goal(f"gka-{shape}", "ratio_sdpa_both", "forward and backward, against SDPA", 0.9)
    for shape in ("article-2048", "article-8192", "text"):
        yield Goal(f"rbf-{shape}", "ratio_sdpa_forward", "forward, against SDPA", 0.9)
        yield Goal(f"rbf-{shape}", "ratio_sdpa_backward", "backward, against SDPA", 0.85)
        yield Goal(f"rbf-{shape}", "ratio_padded_both", "forward and backward, against padded", 1.3)
    for shape in ("dickens", "text"):
        without = "backward, time over that without a table"
        yield Goal(f"gpa-{shape}", "ratio_fused_no_table_backward", without, 1.5, True, True)
        yield Goal(f"gpa-{shape}", "ratio_flex_backward", "backward, against FlexAttention", 2.0)
    for size in ("ti", "s", "b"):
        yield Goal(f"karat-vit-{size}", "ratio_eager_both", "forward and backward, against eager", 5.0)
        memory = "forward and backward, memory over SDPA's"
        yield Goal(f"karat-vit-{size}", "memory_sdpa_both", memory, 1.3, True)
    yield Goal("decode-gka", "ratio_sdpa_forward", "one token, time over SDPA's", 0.6, True, True)
    for size in ("ti", "s", "b"):
        for batch in (64, 128):
            at = f"training at batch {batch}"
            yield Goal(f"models-{size}-training", f"throughput_{batch}", f"{at}, images a second", 1.15)
            yield Goal(f"models-{size}-training", f"memory_{batch}", f"{at}, memory", 0.85, True)
        yield Goal(f"models-{size}-inference", "throughput_best", "inference, images a second", 1.0)


GOALS = tuple(_goals())


@final
@dataclass(frozen=True)
class Reached:
    """A goal beside what was measured.

    Args:
        goal: what was wanted.
        value: the number, None where there is none.
        device: on which it was measured.
    """

    goal: Goal
    value: float | None
    device: str = ""

    @property
    def state(self) -> str:
        """``"met"``, ``"missed"`` or ``"not run yet"``."""
        if self.value is None:
            return "not run yet"
        return "met" if self.goal.met(self.value) else "missed"


@cache
def _predicted() -> dict[tuple[str, str], float]:
    """The newest predictions from before the first run, by record and metric; the files do not change."""
    stores = (results.folder(), (results.repository() or Path()) / "data" / "results")
    for store in stores:
        if written := sorted(store.glob("predictions/*.csv")):
            with written[-1].open(encoding="utf-8", newline="") as lines:
                rows = csv.DictReader(lines)
                return {(row["record"], row["metric"]): float(row["predicted"]) for row in rows}
    return {}


def reached() -> list[Reached]:
    """Every goal beside the newest run on a GPU that has its number; runs on a CPU count for none."""
    # Arm by arm: a page that shows goals is then not out of date when some other benchmark is recorded.
    runs = {arm: _runs("bench", arm) for arm in dict.fromkeys(goal.record for goal in GOALS)}
    return [_reached(goal, runs[goal.record]) for goal in GOALS]


def _reached(goal: Goal, runs: Sequence[results.Record]) -> Reached:
    for record in runs:
        if record.scale == "full" and goal.metric in record.metrics:
            value = record.metrics[goal.metric]
            return Reached(goal, 1 / value if goal.inverse else value, record.device)
    return Reached(goal, None)


def _runs(experiment: str, arm: str = "*") -> list[results.Record]:
    """The runs on a GPU, the newest first; processors are named by their cores."""
    try:
        records = results.load(experiment, arm=arm)
    except ValueError:  # there are none, or none but of made-up data
        return []
    return [record for record in records if record.device != "cpu" and "cores" not in record.device]


def markdown() -> str:
    """The README's table: how many goals of every benchmark were measured and met, and the command."""
    goals = reached()
    lines = _head("what", "goals", "measured", "met", "command")
    for name, words in WORDS.items():
        selected = [each for each in goals if each.goal.benchmark == name]
        measured = [each for each in selected if each.value is not None]
        devices = ", ".join(dict.fromkeys(each.device for each in measured))
        met = sum(each.state == "met" for each in measured)
        cells = (f"{len(measured)} on {devices}", met) if measured else ("not run yet", "")
        lines.append(_line((words, len(selected), *cells, f"`{command(name)}`")))
    return "\n".join(lines)


LANES = 128 / 16  # instructions of a lane in the time of one exponential, on every processor
PROGRAMS = {
    ("gka", "forward"): ("gka_forward", ("gka_forward",)),
    ("gka", "backward"): ("gka_backward", ("gka_backward",)),
    ("rbf", "forward"): ("rbf_forward", ("smooth_forward",)),
    ("rbf", "backward"): ("rbf_backward", ("smooth_backward_query", "smooth_backward_key")),
    ("gpa", "forward"): ("gpa_forward", ("smooth_forward",)),
    ("gpa", "backward"): ("gpa_backward", ("smooth_backward_query", "smooth_backward_key")),
    ("karat", "forward"): ("row_features", ("row_operator_forward",)),
    ("karat", "backward"): ("row_features_backward", ("row_operator_query", "row_operator_key")),
}
"""The sample call of each family and pass, and the programs of it that go over all pairs."""


@cache
def _per_score() -> dict[tuple[str, int, str, int, str], float]:
    """Instructions of a lane for each pair, by sample call, width, mask, length and program."""
    return {
        (row["case"], row["width"], row["mask"], row["length"], row["program"]): row["per_score"]
        for row in json.loads((PACKAGE / "gpu" / "ahead.json").read_text(encoding="utf-8"))
        if row["dtype"] == "bfloat16" and row["per_score"]
    }


def instructions(case: Case, direction: str) -> float:
    """What a lane issues for a pair in all programs of a pass, as compiled; 0 where that is not recorded."""
    name, programs = PROGRAMS.get((case["family"], direction), ("", ()))
    counts, total = _per_score(), 0.0
    for program in programs:
        masks = ("band", "all") if case["causal"] else ("all",)
        keys = ((name, case["width"], mask, length, program) for mask in masks for length in (1024, 197))
        total += next((counts[key] for key in keys if key in counts), 0.0)
    return total


def designed(case: Case, direction: str, kind: str, rates: Rates) -> Floor:
    """The seconds that each resource needs for a pass as our programs do it, tiles at the edges included."""
    if case["queries"] != case["keys"]:  # decoding: nothing but the cache counts
        return floor(work(case, direction, kind), rates)
    waste = padding(case["queries"], case["keys"], causal=case["causal"], window=case["window"])
    total = work(case, direction, kind, designed=True, instructions=instructions(case, direction))
    issue = Rates(rates.products, rates.memory, rates.exponentials, LANES * rates.exponentials)
    least = floor(total, issue)
    return Floor(least.products * waste, least.exponentials * waste, least.memory, least.issue * waste)


def bottleneck(case: Case, direction: str, kind: str, rates: Rates, seconds: float) -> str:
    """The resource that a measured pass needs longest, and how much of its time the count explains.

    Of both passes, the longer one's resource and the sum of their times.
    """
    passes = ("forward", "backward") if direction == "both" else (direction,)
    floors = [designed(case, each, kind, rates) for each in passes]
    bound = max(floors, key=lambda each: each.seconds).bound
    name = "tensor cores" if bound == "products" else bound
    share = sum(each.seconds for each in floors) / seconds
    if share < 0.5:
        return f"no counted rate: {name}, the longest, is {share:.0%} of the time"
    return f"{name}, {share:.0%} of the time"


RIVALS = ("sdpa-cudnn", "sdpa-flash", "sdpa-efficient", "flex-softmax", "flex", "compiled", "eager", "padded")
HEAD = ("shape", "pass", "ours, ms", *RIVALS, "best SDPA", "% of floor", "bound", "goal")
NOT_RUN = "not run"
TYPES = ("bfloat16", "float16", "float32")
PACKAGES = ("torch", "triton")


def report(trainings: Sequence[tuple[str, str]] = ()) -> str:
    """What the runs on a GPU say, as markdown: ours, each rival, the share of the floor, and the goals.

    What has no record is "not run".

    Args:
        trainings: recipe and arm of the training runs to list.
    """
    times, checks = _newest("bench"), _newest("correctness")
    lines = [*_surroundings([*times.values(), *checks.values()]), "", *_head(*HEAD)]
    for family in FAMILIES:
        for case in shapes(family, "full", "cuda"):
            label = f"{family}-{case['shape']}"
            lines += [_line(cells) for cells in _shape(label, case, times.get(label))]
    for label in (f"models-{size}-{mode}" for size in MODELS for mode in ("training", "inference")):
        lines += [_line(cells) for cells in _model(label, times.get(label))]
    return "\n".join([*lines, "", *_correctness(checks), "", *_trainings(trainings)])


def _newest(experiment: str) -> dict[str, results.Record]:
    """The newest full run on a GPU of each arm; the type and the size of a run are part of its arm."""
    return {record.arm: record for record in reversed(_runs(experiment)) if record.scale == "full"}


def _surroundings(records: Sequence[results.Record]) -> Iterator[str]:
    """Device, versions and commit; all of them where records differ."""
    if not records:
        yield "No run on a GPU is recorded."
        return
    for word, values in (
        ("device", [record.device for record in records]),
        ("commit", [record.commit + ("" if record.clean else " with changes") for record in records]),
        *((name, [record.versions.get(name, "") for record in records]) for name in PACKAGES),
    ):
        yield f"{word}: {', '.join(sorted({*filter(None, values)}))}  "


def _line(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _head(*cells: str) -> list[str]:
    return [_line(cells), "|" + "---|" * len(cells)]


def _shape(label: str, case: Case, record: results.Record | None) -> Iterator[list[str]]:
    """A row for each pass of a shape, which says so if the machine was busy."""
    rows = {(row["arm"], row["pass"]): row for row in results.rows(record)} if record else {}
    for direction in case["passes"]:
        row = rows.get(("fused", direction), {})
        ours = _number(row, "ms")
        rivals = (_rival_time(rows.get((rival, direction), {}), ours) for rival in RIVALS)
        cells = [label + ", busy" * bool(record and record.busy), direction, _time(ours, row), *rivals]
        best = record.metrics.get(f"ratio_sdpa_{direction}") if record else None
        share = _number(row, "percent")
        cells += ["" if best is None else f"{best:.2f}×", "" if share is None else f"{share:.0f}"]
        yield [*cells, str(row.get("bound", "")), "; ".join(_verdicts(label, direction, case, record, ours))]


def _number(row: Row, column: str) -> float | None:
    text = row.get(column, "")
    return float(text) if text else None


def _time(ms: float | None, row: Row) -> str:
    """A time, or why there is none."""
    if ms is not None:
        return f"{ms:.4g}"
    return str(row["reason"]).split(":")[0] if row.get("reason") else NOT_RUN


def _rival_time(row: Row, ours: float | None) -> str:
    """A rival's time, and over ours."""
    if not row:
        return ""
    ms = _number(row, "ms")
    return _time(ms, row) + (f" ({ms / ours:.2f}×)" if ms and ours else "")


def _verdicts(
    label: str, direction: str, case: Case | None, record: results.Record | None, ours: float | None
) -> Iterator[str]:
    """The goals of a row: the number, whether it is met, and if not, what holds the pass."""
    for goal in GOALS:
        if goal.record != label or not goal.metric.endswith(f"_{direction}"):
            continue
        text = f"{goal.words.replace('forward and backward, ', '')} {goal}"
        text += "" if goal.predicted is None else f", predicted {goal.predicted:.2f}"
        outcome = _reached(goal, [record] if record else [])
        text += f": {NOT_RUN if outcome.value is None else f'{outcome.value:.2f} {outcome.state}'}"
        if outcome.state == "missed" and case is not None and record is not None and ours is not None:
            rates = Rates(*(record.metrics[name] for name in ("products", "memory", "exponentials")))
            kind = case["family"] if case["family"] in ("gka", "karat") else "softmax"
            text += f", held by {bottleneck(case, direction, kind, rates, ours / 1e3)}"
        yield text


def _model(label: str, record: results.Record | None) -> Iterator[list[str]]:
    """A row for each batch size of a whole model: images a second."""
    rows = results.rows(record) if record else []
    for batch in TRAINING if label.endswith("training") else ("best",):
        chosen = [row for row in rows if batch == "best" or row["batch"] == str(batch)]

        def fastest(*arms: str, chosen: list[Row] = chosen) -> float | None:
            rates = [_number(row, "images_per_second") for row in chosen if row["arm"] in arms]
            return max(filter(None, rates), default=None)

        ours, deit = fastest("gka-fused"), fastest("deit-sdpa-cudnn", "deit-sdpa-flash")
        rivals = [fastest("gka-dense" if rival == "eager" else f"deit-{rival}") for rival in RIVALS]
        name = label + ", busy" * bool(record and record.busy)
        cells = [name, f"batch {batch}, images/s", NOT_RUN if ours is None else f"{ours:.0f}"]
        cells += ["" if rate is None else f"{rate:.0f}" for rate in rivals]
        cells += [f"{ours / deit:.2f}×" if ours and deit else "", "", ""]
        yield [*cells, "; ".join(_verdicts(label, str(batch), None, record, None))]


def _correctness(records: dict[str, results.Record]) -> Iterator[str]:
    """Cases and the largest errors by type, absolute and over the reference's own error in that type."""
    yield from _head("correctness", "cases", "rows", "wrong", "largest error", "over the reference's own")
    for dtype in TYPES:
        selected = [record for arm, record in records.items() if arm.endswith(f"-{dtype}")]
        if not selected:
            yield _line((dtype, NOT_RUN, "", "", "", ""))
            continue
        sums = [sum(int(record.metrics[name]) for record in selected) for name in ("cases", "rows", "wrong")]
        largest = [
            max((record.metrics.get(f"{kind}_{dtype}", 0.0), record.arm, kind) for record in selected
                for kind in kinds)
            for kinds in (("error", "gradient"), ("relative_error", "relative_gradient"))
        ]  # fmt: skip
        errors = [
            f"{value:.2g} ({arm.removesuffix(f'-{dtype}')}, {kind.removeprefix('relative_')})"
            for value, arm, kind in largest
        ]
        yield _line((dtype, *sums, *errors))


def _trainings(trainings: Sequence[tuple[str, str]]) -> Iterator[str]:
    """The trainings: the loss or the accuracy at the end, and the minutes."""
    yield from _head("training", "device", "minutes", "result")
    for name, arm in trainings:
        cells = (NOT_RUN, "", "")
        for run in _runs(name, arm)[:1]:
            cells = (run.device, f"{run.wall_seconds / 60:.1f}", run.quality)
        yield _line((f"{name} {arm}", *cells))


if __name__ == "__main__":
    print(markdown())
