"""Run a benchmark: check first, time every case, print a row for it, and keep the rows."""

import re
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any

import torch

from gkalib import results
from gkalib.bench.cases import LOST, WRONG, Case, Comparison, Row, Sweep
from gkalib.bench.catalog import benchmark
from gkalib.bench.timing import keep as keep_rows
from gkalib.bench.timing import time_case

PACKAGES = ("torch", "numpy", "triton", "statsmodels")
SWEPT = ("arm", "n", "ms", "ms_q10", "ms_q90", "peak_mib")
KEPT = ("ms", "ms_q10", "ms_q90", "peak_mib", "process_mib")  # of a sweep's rows, with the ratios
SHOWN = (
    "arm", "pass", "batch", "ms", "ms_q10", "ms_q90", "tflops", "percent", "images_per_second", "peak_mib",
    "items_per_second", "needed_per_second", "processes", "step_ms", "starves_ms",
)  # fmt: skip


def run(
    name: str,
    shapes: Sequence[str] = (),
    *,
    arms: Sequence[str] = (),
    device: str = "cpu",
    scale: str = "full",
    keep: bool = False,
    apart: bool = True,
) -> list[Row]:
    """Time every case of a benchmark and print a row for it.

    Args:
        name: of the benchmark.
        shapes: the names of those to time, where a benchmark compares arms on shapes; none is all.
        arms: those to time, where a benchmark compares arms; none is all.
        device: ``"cpu"`` or ``"cuda"``.
        scale: ``"smoke"``, ``"reduced"`` or ``"full"``.
        keep: whether the rows go to ``data/results/bench``, one run an arm or a shape.
        apart: whether a shape gets a process of its own; a job has one already.

    Raises:
        ValueError: if there is no such benchmark, or a result of ours is wrong; then it was not timed, while
            its rivals were, and are kept.
    """
    chosen, load = benchmark(name), results.load_average()
    if load is not None and load > results.BUSY:
        print(f"other programs used {load:.2f} of each core in the last minute: records say so")
    if isinstance(chosen, Sweep):
        if shapes:
            raise ValueError(f"bench: {name} has no shapes to choose from")
        return _sweep(name, chosen, device=device, scale=scale, keep=keep, load=load)
    cases = chosen.shapes(scale, device)
    names = [case["shape"] for case in cases]
    unknown = [shape for shape in shapes if shape not in names]
    if unknown:
        raise ValueError(f"bench: {name} has no shape {unknown[0]!r}. Known: {', '.join(names)}")
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"bench: {name} was asked for on cuda, and no CUDA device is there")
    rows = []
    for case in cases:
        if not shapes or case["shape"] in shapes:
            case |= {"arms": [*arms]} if arms else {}
            rows += _compare(name, chosen, case, scale=scale, keep=keep, apart=apart, load=load)
    wrong = {row["shape"]: row["reason"] for row in rows if _is_wrong(row)}
    if wrong:
        reasons = "; ".join(f"on {shape}, so it was not timed: {reason}" for shape, reason in wrong.items())
        raise ValueError(f"bench: {name} gives wrong results {reasons}")
    return rows


def _sweep(name: str, sweep: Sweep, *, device: str, scale: str, keep: bool, load: float | None) -> list[Row]:
    """Every arm at every size, and a record an arm."""
    cases = sweep.cases(scale, device)
    try:
        sweep.gate(device)
    except AssertionError as error:
        raise ValueError(f"bench: {name} gives wrong results, so nothing was timed: {error}") from error
    ratios = {arm: f"ratio_{arm.replace('-', '_')}" for arm in sweep.against}
    columns = (*SWEPT, *ratios.values())
    print(_line(columns))
    rows: list[Row] = []
    for case in cases:
        start = time.perf_counter()
        row = _in_fresh_process(time_case, sweep.prepare, case)
        row["wall_seconds"] = time.perf_counter() - start
        rows.append(row)
        rivals = (rival for rival in rows if rival["arm"] in ratios and rival["n"] == row["n"])
        row |= {ratios[rival["arm"]]: rival["ms"] / row["ms"] for rival in rivals}
        print(_line(row.get(column, "") for column in columns), flush=True)
    for arm in dict.fromkeys(case["arm"] for case in cases) if keep else ():
        selected = [row for row in rows if row["arm"] == arm]
        metrics = {
            f"{column}_{row['n']}": value
            for row in selected
            for column, value in row.items()
            if column in KEPT or column in ratios.values()
        }
        names = dict.fromkeys(column for row in selected for column in row)
        keep_rows(
            "bench",
            f"{name}-{arm}",
            metrics,
            [{column: row.get(column, "") for column in names} for row in selected],
            device=device,
            packages=PACKAGES,
            recipe={"benchmark": name, "cases": [case for case in cases if case["arm"] == arm]},
            scale=scale,
            wall_seconds=sum(row["wall_seconds"] for row in selected),
            load=load,
        )
    return rows


def _compare(
    name: str,
    comparison: Comparison,
    case: Case,
    *,
    scale: str,
    keep: bool,
    apart: bool,
    load: float | None,
) -> list[Row]:
    """Every arm on one shape, kept as one record as soon as it is there."""
    shape, device = case["shape"], case["device"]
    print(f"{name} {shape} on {device}, about {comparison.seconds(case):.0f} s", flush=True)
    start = time.perf_counter()
    try:
        rows = _without_lost(comparison.time, case, apart=apart)
    except BrokenProcessPool:
        print(f"  the process ended before its rows were there; {shape} is not recorded")
        return []
    columns = [column for column in SHOWN if column in rows[0]]
    print(_line(columns))
    for row in rows:
        print(_line(row[column] for column in columns), "", row.get("reason", ""))
    if keep:
        fields = {"recipe": case, "scale": scale, "wall_seconds": time.perf_counter() - start}
        where = {"device": device, "packages": PACKAGES, "load": load}
        keep_rows("bench", f"{name}-{shape}", comparison.summarize(rows), rows, **where, **fields)
    return [{"shape": shape, **row} for row in rows]


def _is_wrong(row: Row) -> bool:
    """Whether a result of ours is wrong; rivals may be what they are."""
    ours = str(row["arm"]).startswith(("fused", "gka-fused"))
    return ours and str(row.get("reason", "")).startswith(WRONG)


def _without_lost(time_arms: Callable[[Case], list[Row]], case: Case, *, apart: bool) -> list[Row]:
    """The rows of a case; where an arm lost the device, again without it, three times at most."""
    rows = _in_fresh_process(time_arms, case) if apart else time_arms(case)
    without: list[str] = []
    for _ in range(3):
        matches = (re.match(rf"{LOST} (\S+?)(:|$)", str(row.get("reason", ""))) for row in rows)
        lost = {match[1] for match in matches if match} - {*without}
        if not lost:
            break
        without += sorted(lost)
        reasons = {row["arm"]: row["reason"] for row in rows if row["arm"] in without}
        rows = _in_fresh_process(time_arms, {**case, "without": without})
        rows = [row | {"reason": reasons.get(row["arm"], row.get("reason", ""))} for row in rows]
    return rows


def _in_fresh_process(call: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns in a fresh process: none inherits another's memory, caches or compiled code."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(call, *arguments).result()


def _line(cells: Iterable[object]) -> str:
    texts = (f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in cells)
    return "  ".join(f"{cell:>18}" for cell in texts)
