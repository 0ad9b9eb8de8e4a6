"""Run a benchmark: each shape in a fresh process, a row an arm, and one record a shape."""

import functools
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from operator import itemgetter
from typing import Any, NamedTuple

import torch

from gkalib import results
from gkalib.bench import attention, models, problems, timing
from gkalib.bench.problems import Recipe
from gkalib.bench.timing import Row

PACKAGES = ("torch", "numpy", "triton")
SHOWN = (
    "arm", "pass", "batch", "ms", "ms_q10", "ms_q90", "tflops", "percent", "images_per_second",
    "peak_mib",
)  # fmt: skip


class Benchmark(NamedTuple):
    """What is timed: it checks its results first, and what is wrong is a row that says so.

    Args:
        shapes: from a scale and a device to the recipe of each shape.
        arms: of a recipe, by their names.
        time: from a recipe to its rows. It is sent to another process, so it is a function of a module.
        summarize: from the rows to the record's metrics, ``wrong`` among them where results can be.
    """

    shapes: Callable[[str, str], dict[str, Recipe]]
    arms: Callable[[Recipe], Iterable[str]]
    time: Callable[[Recipe], list[Row]]
    summarize: Callable[[list[Row]], dict[str, float]]


BENCHMARKS = {
    **{
        family: Benchmark(
            functools.partial(problems.shapes, family),
            attention.arms_of,
            attention.time_arms,
            attention.summarize,
        )
        for family in problems.FAMILIES
    },
    "models": Benchmark(models.shapes, itemgetter("arms"), models.time_models, models.summarize),
}


def benchmark(name: str) -> Benchmark:
    """A benchmark by its name.

    Raises:
        ValueError: if there is none.
    """
    if name not in BENCHMARKS:
        raise ValueError(f"bench: no benchmark named {name!r}. Known: {', '.join(BENCHMARKS)}")
    return BENCHMARKS[name]


def run(
    name: str,
    shapes: Sequence[str] = (),
    *,
    arms: Sequence[str] = (),
    device: str = "cpu",
    scale: str = "full",
    keep: bool = False,
) -> list[Row]:
    """Time every shape of a benchmark and print its rows.

    Args:
        name: of the benchmark.
        shapes: those to time; none is all.
        arms: those to time of each shape; none is all.
        device: ``"cpu"`` or ``"cuda"``.
        scale: ``"smoke"``, ``"reduced"`` or ``"full"``.
        keep: whether a run a shape goes to ``data/results/bench``.

    Raises:
        ValueError: if there is no such benchmark, shape or arm, its scale is too large for a CPU, or a result
            of ours is wrong; then it was not timed, while its rivals were, and are kept.
    """
    chosen, load = benchmark(name), results.load_average()
    if scale == "full" and device == "cpu":
        asked = "name --device cuda, or --scale reduced"
        raise ValueError(f"bench: {name} at full scale is sized for a GPU: {asked}")
    recipes = chosen.shapes(scale, device)
    if unknown := [shape for shape in shapes if shape not in recipes]:
        raise ValueError(f"bench: {name} has no shape {unknown[0]!r}. Known: {', '.join(recipes)}")
    for shape in (shapes or recipes) if arms else ():
        recipe = recipes[shape]
        known = chosen.arms(recipe)
        if unknown := [arm for arm in arms if arm not in known]:
            raise ValueError(f"bench: {name} {shape} has no arm {unknown[0]!r}. Known: {', '.join(known)}")
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"bench: {name} was asked for on cuda, and no CUDA device is there")
    if load is not None and load > results.BUSY:
        print(f"other programs used {load:.2f} of each core in the last minute: records say so")
    every, wrong = [], []
    for shape in shapes or recipes:
        recipe, start = recipes[shape] | ({"arms": [*arms]} if arms else {}), time.perf_counter()
        print(f"{name} {shape} on {device}", flush=True)
        try:
            rows = _in_fresh_process(chosen.time, recipe)
        except BrokenProcessPool:
            print(f"  the process ended before its rows were there; {shape} is not recorded")
            continue
        _show(rows)
        metrics = chosen.summarize(rows)
        wrong += [f"{shape}: {row['reason']}" for row in rows if metrics.get("wrong") and _is_wrong(row)]
        every += [{"shape": shape, **row} for row in rows]
        if keep:
            fields = {"recipe": recipe, "scale": scale, "wall_seconds": time.perf_counter() - start}
            where = {"device": device, "packages": PACKAGES, "load": load}
            timing.keep("bench", f"{name}-{shape}", metrics, rows, **where, **fields)
    if wrong:
        raise ValueError(f"bench: {name} gives wrong results, which were not timed: {'; '.join(wrong)}")
    return every


def _is_wrong(row: Row) -> bool:
    return str(row.get("reason", "")).startswith(attention.WRONG)


def _in_fresh_process(call: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns in a fresh process: none inherits another's memory, caches or compiled code."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(call, *arguments).result()


def _show(rows: Sequence[Row]) -> None:
    """Print the rows, each with the reason where it did not run."""
    columns = [*(column for column in SHOWN if column in rows[0]), "reason"]
    texts = [[_text(row.get(column, "")) for column in columns] for row in rows]
    print(results.Table(columns, texts, "gkalib-bench"), flush=True)


def _text(cell: object) -> str:
    return f"{cell:.3g}" if isinstance(cell, float) else str(cell)
