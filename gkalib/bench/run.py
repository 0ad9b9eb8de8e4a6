"""Run a benchmark: check first, time every case alone, print a row a case, and keep the rows."""

import os
import platform
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import torch

from gkalib import results
from gkalib.bench.measure import measure
from gkalib.bench.registry import Benchmark, benchmarks

Row = dict[str, Any]

COLUMNS = ("arm", "n", "ms", "ms_q10", "ms_q90", "peak_mib")
MEASURED = ("ms", "ms_q10", "ms_q90", "peak_mib", "process_mib")  # what a record keeps, with the ratios


def run(name: str, *, device: str = "cpu", scale: str = "full", keep: bool = False) -> list[Row]:
    """Time every case of a benchmark, each in a process of its own, and print a row a case.

    Args:
        name: of the benchmark.
        device: ``"cpu"`` or ``"cuda"``.
        scale: ``"smoke"``, ``"reduced"`` or ``"full"``.
        keep: whether the rows go to ``data/results/bench``, one run an arm.

    Raises:
        ValueError: if there is no such benchmark, or a result is wrong: then nothing is timed.
    """
    known = benchmarks()
    if name not in known:
        raise ValueError(f"bench: no benchmark named {name!r}. Known: {', '.join(known)}")
    benchmark = known[name]
    cases = benchmark.cases(scale, device)
    try:
        benchmark.gate(device)
    except AssertionError as error:
        raise ValueError(f"bench: {name} gives wrong results, so nothing was timed: {error}") from error
    ratios = [f"ratio_{arm.replace('-', '_')}" for arm in benchmark.against]
    print("  ".join(f"{column:>18}" for column in (*COLUMNS, *ratios)))
    rows: list[Row] = []
    for case in cases:
        # A fresh process: no case inherits the memory, the caches or the compiled code of another.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
            start = time.perf_counter()
            row = alone.submit(measure, name, case).result()
            row["wall_seconds"] = time.perf_counter() - start
        rows.append(row)
        _set_beside(row, rows, benchmark)
        print("  ".join(f"{_shown(row.get(column, '')):>18}" for column in (*COLUMNS, *ratios)), flush=True)
    if keep:
        for arm in dict.fromkeys(case["arm"] for case in cases):
            recipe = {"benchmark": name, "cases": [case for case in cases if case["arm"] == arm]}
            _save(
                name,
                arm,
                [row for row in rows if row["arm"] == arm],
                recipe=recipe,
                scale=scale,
                device=device,
            )
    return rows


def _set_beside(row: Row, rows: list[Row], benchmark: Benchmark) -> None:
    """Add to a row the time of each rival at the same size over its own."""
    for rival in rows:
        if rival["arm"] in benchmark.against and rival["n"] == row["n"]:
            row[f"ratio_{rival['arm'].replace('-', '_')}"] = rival["ms"] / row["ms"]


def _shown(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _save(name: str, arm: str, rows: list[Row], *, recipe: Row, scale: str, device: str) -> None:
    """Keep one arm's rows as a run of the experiment `bench`."""
    metrics = {
        f"{column}_{row['n']}": value
        for row in rows
        for column, value in row.items()
        if column in MEASURED or column.startswith("ratio_")
    }
    record = results.Record(
        experiment="bench",
        arm=f"{name}-{arm}",
        scale=scale,
        recipe=recipe,
        seed=0,
        device=_device(device),
        wall_seconds=sum(row["wall_seconds"] for row in rows),
        metrics=metrics,
        **results.provenance("torch", "numpy", "statsmodels"),
    )
    columns = dict.fromkeys(column for row in rows for column in row)
    results.save(record, rows=[{column: row.get(column, "") for column in columns} for row in rows])


def _device(device: str) -> str:
    """The device in words, as records name it."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    return f"{os.cpu_count()} cores {platform.machine()}"
