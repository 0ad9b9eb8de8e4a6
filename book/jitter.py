"""Executes chapters again, also under perturbed arithmetic or as elsewhere: they must show the same.

No cell is excused and there is no tolerance: a cell that trains does so in float64, where a last place does
not grow to a printed digit, and a number that rounding decides is printed as a range.
"""

import argparse
import asyncio
import configparser
import difflib
import os
import random
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, final

import nbformat
from execute import clean, environment, run
from nbformat import NotebookNode
from pairs import ROOT, code_cells, paths, slugs

SANITIZE = ROOT / "tests" / "chapters" / "sanitize.cfg"
MINUTES = 2.5  # of a day's draw on two quiet cores, by the times in the stamps

_RULES = configparser.RawConfigParser()
_RULES.read(SANITIZE, encoding="utf-8")
_VARIES = [(rule["regex"], rule["replace"]) for name, rule in _RULES.items() if name != "DEFAULT"]
# Pixels differ between versions of a font: a figure's digest is compared instead. A widget's id is random.
IGNORED = ("image/png", "image/jpeg", "application/vnd.jupyter.widget-view+json")
LINES = 20  # of a difference that are shown


def shown(cell: NotebookNode) -> dict[str, list[Any]]:
    """What a cell's outputs show, by the kind of output, without what may vary."""
    kinds: dict[str, list[Any]] = defaultdict(list)
    for output in cell.outputs:
        if output.output_type == "stream":
            kinds[output.name] = ["".join([*kinds[output.name], output.text])]
        elif output.output_type == "error":
            kinds["error"].append(f"{output.ename}: {output.evalue}")
        else:
            for kind in output.data.keys() - IGNORED:
                kinds[kind].append(output.data[kind])
    return {kind: [_varying(value) for value in values] for kind, values in kinds.items()}


def _varying(value: Any) -> Any:
    if isinstance(value, str):
        for pattern, name in _VARIES:
            value = re.sub(pattern, name, value)
    return value


def differences(stored: NotebookNode, again: NotebookNode) -> dict[int, str]:
    """Say how the outputs of two executions of the same code cells differ, by the cell's number from 0."""
    pairs = zip(code_cells(stored), code_cells(again), strict=True)
    found = {}
    for number, (before, after) in enumerate(pairs):
        old, new = shown(before), shown(after)
        failed = "error" in new and "error" not in old  # then it shows little else, and its error says why
        kinds = ["error"] if failed else sorted({*old, *new})
        lines = [_difference(kind, old.get(kind, []), new.get(kind, [])) for kind in kinds]
        if any(lines):
            found[number] = "\n".join(filter(None, lines))
    return found


def _difference(kind: str, old: list[Any], new: list[Any]) -> str:
    if old == new:
        return ""
    before, after = ("\n".join(map(_text, values)).splitlines() for values in (old, new))
    changed = [line for line in difflib.ndiff(before, after) if line[0] in "-+"]
    more = [f"and {len(changed) - LINES} lines more"] if len(changed) > LINES else []
    return "\n".join([f"{kind}: - is stored, + is new", *changed[:LINES], *more])


def _text(value: Any) -> str:
    """An output in lines, of a digest one for each array."""
    if not isinstance(value, dict):
        return str(value)
    return "\n".join(
        f"{key}: {entry}"
        for key, entries in value.items()
        for entry in (entries if isinstance(entries, list) else _text(entries).splitlines())
    )


def again(stored: NotebookNode, root: Path, *, settings: Mapping[str, str] | None = None):
    """Execute a stored notebook's cells again, to the last even where one fails; arguments as for ``run``."""
    copy = nbformat.from_dict(stored)
    for cell in code_cells(copy):
        cell.outputs, cell.execution_count = [], None
    asyncio.run(run(copy, root, settings=settings, go_on=True))
    clean(copy, root)
    return copy


def _plain() -> dict[str, str]:
    """Settings under which libraries use the instructions that every 64-bit processor has."""
    # NumPy warns of a feature that this processor lacks: name those that it has beyond the least.
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    return {
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_CBWR": "COMPATIBLE",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "DNNL_MAX_CPU_ISA": "SSE41",
        "OPENBLAS_CORETYPE": "Prescott",
        "NPY_DISABLE_CPU_FEATURES": " ".join(name for name in __cpu_dispatch__ if __cpu_features__[name]),
    }


def _threads(count: int) -> dict[str, str]:
    return dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(count))


def _perturbed(**settings: str) -> dict[str, str]:
    """Settings under which Python starts with ``book/perturbed/sitecustomize.py``."""
    path = os.pathsep.join([str(Path(__file__).parent / "perturbed"), environment()["PYTHONPATH"]])
    return {"PYTHONPATH": path, **settings}


def _noise(seed: int) -> dict[str, str]:
    """Settings under which torch computes with noise in the last place, see ``book/noise.py``."""
    return _perturbed(NOISE=str(seed))


def _machine() -> dict[str, str]:
    """Settings under which cache, memory and number of cores are others, see ``book/machine.py``."""
    # MKL would take no more threads than there are cores, and torch asks it.
    return _perturbed(**_threads(3), MKL_DYNAMIC="FALSE")


@final
@dataclass(frozen=True)
class Perturbation:
    """Another way to round, or another machine.

    Args:
        settings: what the kernel's environment has in addition, and with it each process that a cell starts.
        cost: how many times as long as usual a chapter takes, about.
    """

    settings: Callable[[], Mapping[str, str]]
    cost: float = 1.0


PERTURBATIONS = {
    "plain": Perturbation(_plain, cost=2.0),
    "one-thread": Perturbation(partial(_threads, 1), cost=1.3),
    "two-threads": Perturbation(partial(_threads, 2)),
    "machine": Perturbation(_machine, cost=1.3),
    **{f"noise-{seed}": Perturbation(partial(_noise, seed), cost=2.0) for seed in range(3)},
}


def jitter(path: Path, name: str | None = None) -> dict[int, str]:
    """Say which cells of a stored notebook show something else when executed again, by their numbers.

    Args:
        path: of the notebook; its first cell has the number 0.
        name: of the perturbation; without one nothing is perturbed.
    """
    stored = nbformat.read(path, as_version=4)
    settings = PERTURBATIONS[name].settings() if name else None
    return differences(stored, again(stored, path.parents[1], settings=settings))


def command(slug: str, name: str) -> str:
    """What repeats one case."""
    return f'make jitter ONLY="{slug}" HOW="{name}"'


def drawn(seed: str, root: Path = ROOT) -> list[tuple[str, str]]:
    """The chapters and perturbations that a seed chooses, for about ``MINUTES`` of two cores."""
    cases = [(slug, name) for slug in slugs(root) for name in PERTURBATIONS]
    random.Random(seed).shuffle(cases)
    left, chosen = 60 * MINUTES, []
    for slug, name in cases:
        stamp = nbformat.read(paths(root, slug)[0], as_version=4).metadata.get("gkalib", {}).get("stamp", {})
        left -= (stamp.get("seconds", 20.0) + 5) * PERTURBATIONS[name].cost
        if left < 0:
            break
        chosen.append((slug, name))
    return sorted(chosen)


def _timed(case: tuple[str, str]) -> tuple[dict[int, str], float]:
    start = time.perf_counter()
    return jitter(paths(ROOT, case[0])[0], case[1]), time.perf_counter() - start


def main(arguments: list[str] | None = None) -> int:
    """Perturb the chapters named, all unless told; print what differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("slugs", nargs="*", metavar="slug", help="chapters, all unless given")
    parser.add_argument("--how", nargs="+", choices=PERTURBATIONS, default=list(PERTURBATIONS))
    parser.add_argument("--seed", help="take what this seed chooses, a day such as 2026-01-31 in `make test`")
    parser.add_argument("--processes", type=int, default=1, help="chapters at once (%(default)s)")
    options = parser.parse_args(arguments)
    chosen = [Path(slug).stem for slug in options.slugs] or slugs(ROOT)
    cases = drawn(options.seed) if options.seed else [(slug, name) for slug in chosen for name in options.how]
    differ = False
    with ProcessPoolExecutor(options.processes) as pool:
        for case, (cells, seconds) in zip(cases, pool.map(_timed, cases), strict=True):
            differ |= bool(cells)
            print(f"{' '.join(case)}: {len(cells)} cells differ, took {seconds:.0f} s", flush=True)
            for number, text in cells.items():
                print(f"cell {number}:\n{text}\n", flush=True)
    return differ


if __name__ == "__main__":
    sys.exit(main())
