"""Run a benchmark: check first, time every case alone, print a row a case, and keep the rows."""

import platform
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from gkalib.bench.measure import measure
from gkalib.bench.registry import Benchmark, benchmarks
from gkalib.results import Record, provenance, save

COLUMNS = ("arm", "n", "ms", "ms_q10", "ms_q90", "peak_mib")


def run(name: str, *, device: str = "cpu", scale: str = "full", keep: bool = False) -> list[dict[str, object]]:
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
    rows = []
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
        for arm in dict.fromkeys(row["arm"] for row in rows):
            _save(name, scale, device, [row for row in rows if row["arm"] == arm])
    return rows


def _set_beside(row: dict[str, object], rows: list[dict[str, object]], benchmark: Benchmark) -> None:
    """Add to a row the time of each rival at the same size over its own."""
    for rival in rows:
        if rival["arm"] in benchmark.against and rival["n"] == row["n"]:
            row[f"ratio_{rival['arm'].replace('-', '_')}"] = rival["ms"] / row["ms"]


def _shown(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _save(name: str, scale: str, device: str, rows: list[dict[str, object]]) -> None:
    """Keep one arm's rows as a run of the experiment `bench`."""
    measured = ("ms", "ms_q10", "ms_q90", "peak_mib", "process_mib")
    metrics = {
        f"{column}_{row['n']}": value
        for row in rows
        for column, value in row.items()
        if column in measured or column.startswith("ratio_")
    }
    settings = [{k: v for k, v in row.items() if k not in metrics and not isinstance(v, float)} for row in rows]
    record = Record(
        experiment="bench",
        arm=f"{name}-{rows[0]['arm']}",
        scale=scale,
        recipe={"benchmark": name, "settings": [{k: v for k, v in s.items() if k != "runs"} for s in settings]},
        seed=0,
        device=_device(device),
        wall_seconds=sum(row["wall_seconds"] for row in rows),
        metrics=metrics,
        **provenance("torch", "numpy", "statsmodels"),
    )
    save(record, rows=rows)


def _device(device: str) -> str:
    """The device in words, as records name it."""
    if device == "cpu":
        import os

        return f"{os.cpu_count()} cores {platform.machine()}"
    import torch

    return torch.cuda.get_device_name()
