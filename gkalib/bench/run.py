"""Run a benchmark: check first, time every case alone, print a row a case, and keep the rows."""

import os
import platform
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any

import torch

from gkalib import results
from gkalib.bench.measure import measure
from gkalib.bench.registry import Benchmark, Comparison, Row, benchmarks
from gkalib.bench.summary import WRONG

COLUMNS = ("arm", "n", "ms", "ms_q10", "ms_q90", "peak_mib")
MEASURED = ("ms", "ms_q10", "ms_q90", "peak_mib", "process_mib")  # what a record keeps, with the ratios
SHOWN = (
    "arm", "pass", "batch", "ms", "ms_q10", "ms_q90", "tflops", "percent", "images_per_second", "peak_mib",
    "items_per_second", "needed_per_second", "processes", "step_ms", "starves_ms",
)  # fmt: skip


def run(
    name: str,
    shapes: Sequence[str] = (),
    *,
    device: str = "cpu",
    scale: str = "full",
    keep: bool = False,
    apart: bool = True,
) -> list[Row]:
    """Time every case of a benchmark, each in a process of its own, and print a row a case.

    Args:
        name: of the benchmark.
        shapes: the names of those to time, where a benchmark compares arms on shapes; none is all.
        device: ``"cpu"`` or ``"cuda"``.
        scale: ``"smoke"``, ``"reduced"`` or ``"full"``.
        keep: whether the rows go to ``data/results/bench``, one run an arm or a shape.
        apart: whether a shape gets a process of its own; a job has one already.

    Raises:
        ValueError: if there is no such benchmark, or a result of ours is wrong; then it was not timed, while
            its rivals were, and are kept.
    """
    known = benchmarks()
    if name not in known:
        raise ValueError(f"bench: no benchmark named {name!r}. Known: {', '.join(known)}")
    benchmark = known[name]
    if isinstance(benchmark, Comparison):
        return _compare(name, benchmark, shapes, device=device, scale=scale, keep=keep, apart=apart)
    if shapes:
        raise ValueError(f"bench: {name} has no shapes to choose from")
    return _run_cases(name, benchmark, device=device, scale=scale, keep=keep)


def _run_cases(name: str, benchmark: Benchmark, *, device: str, scale: str, keep: bool) -> list[Row]:
    """A benchmark whose every case is one arm at one size."""
    cases = benchmark.cases(scale, device)
    try:
        benchmark.gate(device)
    except AssertionError as error:
        raise ValueError(f"bench: {name} gives wrong results, so nothing was timed: {error}") from error
    ratios = [f"ratio_{arm.replace('-', '_')}" for arm in benchmark.against]
    print("  ".join(f"{column:>18}" for column in (*COLUMNS, *ratios)))
    rows: list[Row] = []
    for case in cases:
        start = time.perf_counter()
        row = _alone(measure, name, case)
        row["wall_seconds"] = time.perf_counter() - start
        rows.append(row)
        _set_beside(row, rows, benchmark)
        print("  ".join(f"{_shown(row.get(column, '')):>18}" for column in (*COLUMNS, *ratios)), flush=True)
    if keep:
        for arm in dict.fromkeys(case["arm"] for case in cases):
            recipe = {"benchmark": name, "cases": [case for case in cases if case["arm"] == arm]}
            mine = [row for row in rows if row["arm"] == arm]
            metrics = {
                f"{column}_{row['n']}": value
                for row in mine
                for column, value in row.items()
                if column in MEASURED or column.startswith("ratio_")
            }
            columns = dict.fromkeys(column for row in mine for column in row)
            mine = [{column: row.get(column, "") for column in columns} for row in mine]
            seconds = sum(row["wall_seconds"] for row in mine)
            _save(f"{name}-{arm}", mine, metrics, recipe, scale=scale, device=device, seconds=seconds)
    return rows


def _compare(
    name: str,
    benchmark: Comparison,
    shapes: Sequence[str],
    *,
    device: str,
    scale: str,
    keep: bool,
    apart: bool = True,
) -> list[Row]:
    """A benchmark of several arms on each shape; a shape's record is kept as soon as it is there."""
    cases = benchmark.shapes(scale, device)
    known = [case["shape"] for case in cases]
    wrong = [shape for shape in shapes if shape not in known]
    if wrong:
        raise ValueError(f"bench: {name} has no shape {wrong[0]!r}. Known: {', '.join(known)}")
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"bench: {name} was asked for on cuda, and no CUDA device is there")
    rows: list[Row] = []
    for case in cases:
        if shapes and case["shape"] not in shapes:
            continue
        print(f"{name} {case['shape']} on {device}, about {benchmark.seconds(case):.0f} s", flush=True)
        start = time.perf_counter()
        try:
            found = _measured(benchmark.measure, case, apart=apart)
        except BrokenProcessPool:
            print(f"  the process ended before its rows were there; {case['shape']} is not recorded")
            continue
        columns = [column for column in SHOWN if column in found[0]]
        print("  ".join(f"{column:>18}" for column in columns))
        for row in found:
            print("  ".join(f"{_shown(row[column]):>18}" for column in columns), row.get("reason", ""))
        if keep:
            metrics = benchmark.summarize(found)
            seconds = time.perf_counter() - start
            _save(
                f"{name}-{case['shape']}", found, metrics, case, scale=scale, device=device, seconds=seconds
            )
        rows += [{"shape": case["shape"], **row} for row in found]
    wrong = {row["shape"]: row["reason"] for row in rows if _is_wrong(row)}
    if wrong:
        said = "; ".join(f"on {shape}, so it was not timed: {reason}" for shape, reason in wrong.items())
        raise ValueError(f"bench: {name} gives wrong results {said}")
    return rows


def _is_wrong(row: Row) -> bool:
    """Whether a result of ours is wrong; rivals may be what they are."""
    ours = str(row["arm"]).startswith(("fused", "gka-fused"))
    return ours and str(row.get("reason", "")).startswith(WRONG)


def _measured(measure: Callable[[Row], list[Row]], case: Row, *, apart: bool) -> list[Row]:
    """The rows of a case; where an arm lost the device, again without it, three times at most."""
    found = _alone(measure, case) if apart else measure(case)
    without: list[str] = []
    for _ in range(3):
        said = (
            re.match(r"the device was lost with (\S+?)(:|$)", str(row.get("reason", ""))) for row in found
        )
        lost = {match[1] for match in said if match} - {*without}
        if not lost:
            break
        without += sorted(lost)
        reasons = {row["arm"]: row["reason"] for row in found if row["arm"] in without}
        found = _alone(measure, {**case, "without": without})
        found = [row | {"reason": reasons.get(row["arm"], row.get("reason", ""))} for row in found]
    return found


def _alone(call: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns in a fresh process: none inherits another's memory, caches or compiled code."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
        return alone.submit(call, *arguments).result()


def _set_beside(row: Row, rows: list[Row], benchmark: Benchmark) -> None:
    """Add to a row the time of each rival at the same size over its own."""
    for rival in rows:
        if rival["arm"] in benchmark.against and rival["n"] == row["n"]:
            row[f"ratio_{rival['arm'].replace('-', '_')}"] = rival["ms"] / row["ms"]


def _shown(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _save(
    arm: str,
    rows: list[Row],
    metrics: dict[str, float],
    recipe: Row,
    *,
    scale: str,
    device: str,
    seconds: float,
) -> None:
    """Keep rows as a run of the experiment `bench`."""
    packages = ("torch", "numpy", "triton" if device == "cuda" else "statsmodels")
    record = results.Record(
        experiment="bench",
        arm=arm,
        scale=scale,
        recipe=recipe,
        seed=0,
        device=_device(device),
        wall_seconds=seconds,
        metrics=metrics,
        **results.provenance(*packages),
    )
    results.save(record, rows=rows)


def _device(device: str) -> str:
    """The device in words, as records name it."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    return f"{os.cpu_count()} cores {platform.machine()}"
