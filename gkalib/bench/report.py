"""What the runs on a GPU say, in one table: ours, each rival, the share of the floor, and the goals.

``python -m gkalib reproduce --report`` prints it; what has no record is "not run".
"""

from collections.abc import Iterator, Sequence

from gkalib import results
from gkalib.bench import goals, predictions
from gkalib.bench.bounds import held
from gkalib.bench.models import SIZES, TRAINING
from gkalib.bench.registry import Case, Row
from gkalib.bench.roofline import Rates
from gkalib.bench.shapes import FAMILIES, shapes

RIVALS = ("sdpa-cudnn", "sdpa-flash", "sdpa-efficient", "flex", "compiled", "eager", "padded")
HEAD = ("shape", "pass", "ours, ms", *RIVALS, "best SDPA", "% of floor", "bound", "goal")
NOT_RUN = "not run"
TYPES = ("bfloat16", "float16", "float32")
PACKAGES = ("torch", "triton")


def report() -> str:
    """The whole report as markdown."""
    kept = _on_gpu("bench")
    lines = [*_surroundings([*kept.values(), *_on_gpu("correctness").values()]), "", _line(HEAD)]
    lines += ["|" + "---|" * len(HEAD)]
    for family in FAMILIES:
        for case in shapes(family, "full", "cuda"):
            label = f"{family}-{case['shape']}"
            lines += [_line(cells) for cells in _shape(label, case, kept.get(label))]
    for size in SIZES:
        for mode in ("training", "inference"):
            label = f"models-{size}-{mode}"
            lines += [_line(cells) for cells in _model(label, mode, kept.get(label))]
    return "\n".join([*lines, "", *_correctness(), "", *_trained()])


def _on_gpu(experiment: str) -> dict[str, results.Record]:
    """The newest full run on a GPU of each arm; the type and the size of a run are part of its arm."""
    found: dict[str, results.Record] = {}
    for record in _runs(experiment):
        if record.scale == "full" and _is_gpu(record.device):
            found.setdefault(record.arm, record)
    return found


def _runs(experiment: str) -> list[results.Record]:
    try:
        return results.load(experiment)
    except ValueError:  # there are none, or none but of made-up data
        return []


def _is_gpu(device: str) -> bool:
    """Whether a record's device is one; processors are named by their cores."""
    return device != "cpu" and "cores" not in device


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


def _shape(label: str, case: Case, record: results.Record | None) -> Iterator[list[str]]:
    """A row for each pass of a shape."""
    rows = {(row["arm"], row["pass"]): row for row in results.rows(record)} if record else {}
    for one in case["passes"]:
        row = rows.get(("fused", one), {})
        ours = _number(row, "ms")
        cells = [label, one, _time(ours, row)]
        cells += [_beside(rows.get((rival, one), {}), ours) for rival in RIVALS]
        best = record.metrics.get(f"ratio_sdpa_{one}") if record else None
        share = _number(row, "percent")
        cells += ["" if best is None else f"{best:.2f}×", "" if share is None else f"{share:.0f}"]
        yield [*cells, str(row.get("bound", "")), "; ".join(_goals(label, one, case, record, ours))]


def _number(row: Row, column: str) -> float | None:
    text = row.get(column, "")
    return float(text) if text else None


def _time(ms: float | None, row: Row) -> str:
    """A time, or why there is none."""
    if ms is not None:
        return f"{ms:.4g}"
    return str(row["reason"]).split(":")[0] if row.get("reason") else NOT_RUN


def _beside(row: Row, ours: float | None) -> str:
    """A rival's time, and over ours."""
    if not row:
        return ""
    ms = _number(row, "ms")
    return _time(ms, row) + (f" ({ms / ours:.2f}×)" if ms and ours else "")


def _goals(
    label: str, one: str, case: Case | None, record: results.Record | None, ours: float | None
) -> Iterator[str]:
    """The goals of a row: the number, whether it is met, and if not, what holds the pass."""
    for reached in goals.reached():
        goal = reached.goal
        if goal.record != label or not goal.metric.endswith(f"_{one}"):
            continue
        said = f"{goal.words.replace('forward and backward, ', '')} {goal}"
        known = predictions.of(goal)
        said += f", predicted {known:.2f}" if known is not None else ""
        if reached.value is None:
            yield f"{said}: {NOT_RUN}"
            continue
        said += f": {reached.value:.2f} {reached.state}"
        if reached.state == "missed" and case is not None and record is not None and ours is not None:
            said += f", held by {_held(case, one, record, ours)}"
        yield said


def _held(case: Case, one: str, record: results.Record, ours: float) -> str:
    rates = Rates(*(record.metrics[name] for name in ("products", "memory", "exponentials")))
    kind = case["family"] if case["family"] in ("gka", "karat") else "softmax"
    return str(held(case, one, kind, rates, ours / 1e3))


def _model(label: str, mode: str, record: results.Record | None) -> Iterator[list[str]]:
    """A row for each batch size of a whole model: images a second."""
    rows = results.rows(record) if record else []
    for batch in TRAINING if mode == "training" else ("best",):
        chosen = [row for row in rows if batch == "best" or row["batch"] == str(batch)]

        def fastest(*arms: str, chosen: list[Row] = chosen) -> float | None:
            rates = [_number(row, "images_per_second") for row in chosen if row["arm"] in arms]
            return max(filter(None, rates), default=None)

        ours, deit = fastest("gka-fused"), fastest("deit-sdpa-cudnn", "deit-sdpa-flash")
        shown = {
            name: fastest(arm)
            for name, arm in (
                ("sdpa-cudnn", "deit-sdpa-cudnn"), ("sdpa-flash", "deit-sdpa-flash"), ("eager", "gka-dense"),
            )
        }  # fmt: skip
        cells = [label, f"batch {batch}, images/s", NOT_RUN if ours is None else f"{ours:.0f}"]
        cells += ["" if shown.get(rival) is None else f"{shown[rival]:.0f}" for rival in RIVALS]
        cells += [f"{ours / deit:.2f}×" if ours and deit else "", "", ""]
        yield [*cells, "; ".join(_goals(label, str(batch), None, record, None))]


def _correctness() -> Iterator[str]:
    """Cases and the largest errors by type, absolute and over the reference's own error in that type."""
    kept = _on_gpu("correctness")
    yield _line(("correctness", "cases", "rows", "wrong", "largest error", "over the reference's own"))
    yield "|" + "---|" * 6
    for dtype in TYPES:
        mine = [record for arm, record in kept.items() if arm.endswith(f"-{dtype}")]
        if not mine:
            yield _line((dtype, NOT_RUN, "", "", "", ""))
            continue
        sums = [sum(int(record.metrics[name]) for record in mine) for name in ("cases", "rows", "wrong")]
        largest = [
            max((record.metrics.get(f"{kind}_{dtype}", 0.0), record.arm, kind) for record in mine
                for kind in kinds)
            for kinds in (("error", "gradient"), ("relative_error", "relative_gradient"))
        ]  # fmt: skip
        told = [
            f"{value:.2g} ({arm.removesuffix(f'-{dtype}')}, {kind.removeprefix('relative_')})"
            for value, arm, kind in largest
        ]
        yield _line((dtype, *sums, *told))


def _trained() -> Iterator[str]:
    """The reduced trainings of the queue: the loss or the accuracy at the end, and the minutes."""
    from gkalib.bench.training import WANTED

    yield _line(("training", "device", "minutes", "result"))
    yield "|" + "---|" * 4
    for name, arm, _ in WANTED:
        mine = [one for one in _runs(name) if one.arm == arm and _is_gpu(one.device)]
        if not mine:
            yield _line((f"{name} {arm}", NOT_RUN, "", ""))
            continue
        told = [
            f"{metric} {value:.4g}"
            for metric, value in mine[0].metrics.items()
            if metric in ("val_loss", "bits_per_byte", "top1", "ema_top1")
        ]
        yield _line((f"{name} {arm}", mine[0].device, f"{mine[0].wall_seconds / 60:.1f}", ", ".join(told)))
