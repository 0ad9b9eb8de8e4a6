"""Executes chapters under perturbed arithmetic: what a page shows must not depend on the processor.

No cell is excused and there is no tolerance: a cell that trains does so in float64, where a last place does
not grow to a printed digit, and a number that rounding decides is printed as a range.
"""

import argparse
import datetime
import random
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import final

import nbformat
from pairs import ROOT, paths, slugs
from rerun import again, differences, read

MINUTES = 6.0  # of a day's draw on two quiet cores, by the times in the stamps; ten are allowed


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


@final
@dataclass(frozen=True)
class Perturbation:
    """Another way to round.

    Args:
        settings: what the kernel's environment has in addition.
        noise: the seed of the noise in the last place, see ``book/noise.py``; None is without.
        cost: how many times as long as usual a chapter takes, about.
    """

    settings: Callable[[], Mapping[str, str]] = dict
    noise: int | None = None
    cost: float = 1.0

    @property
    def before(self) -> str:
        """The code that runs before the first cell; it leaves no name behind."""
        folder = str(Path(__file__).parent)
        start = f"__import__('sys').path.insert(0, {folder!r}); __import__('noise').start({self.noise})"
        return "" if self.noise is None else f"\n{start}; __import__('sys').path.remove({folder!r})\n"


PERTURBATIONS = {
    "plain": Perturbation(settings=_plain, cost=2.0),
    "one-thread": Perturbation(settings=lambda: _threads(1), cost=1.3),
    "two-threads": Perturbation(settings=lambda: _threads(2)),
    "noise-0": Perturbation(noise=0, cost=2.0),
    "noise-1": Perturbation(noise=1, cost=2.0),
    "noise-2": Perturbation(noise=2, cost=2.0),
}


def jitter(path: Path, name: str) -> dict[int, str]:
    """Say which cells of a stored notebook show something else under a perturbation, by their numbers from 0.

    Raises:
        ValueError: if a cell never ran.
    """
    stored, perturbation = read(path), PERTURBATIONS[name]
    new = again(stored, path.parents[1], settings=perturbation.settings(), before=perturbation.before)
    return differences(stored, new)


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


def today() -> str:
    """The seed of the day."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def _timed(case: tuple[str, str]) -> tuple[dict[int, str], float]:
    start = time.perf_counter()
    return jitter(paths(ROOT, case[0])[0], case[1]), time.perf_counter() - start


def table(results: Iterable[tuple[tuple[str, str], dict[int, str]]]) -> str:
    """Chapters × perturbations: the cells that differ, or ``=``, in Markdown."""
    cells = {case: " ".join(map(str, found)) or "=" for case, found in results}
    names = [name for name in PERTURBATIONS if any(case[1] == name for case in cells)]
    rows = [["chapter", *names], ["---"] * (len(names) + 1)]
    for slug in sorted({slug for slug, _ in cells}):
        rows.append([slug, *(cells.get((slug, name), "") for name in names)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main(arguments: list[str] | None = None) -> int:
    """Perturb the chapters named, all unless told; print what differs, and a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("slugs", nargs="*", metavar="slug", help="chapters, all unless given")
    parser.add_argument("--how", nargs="+", choices=PERTURBATIONS, default=list(PERTURBATIONS))
    parser.add_argument("--seed", help="take what this seed chooses, a day such as 2026-01-31 in `make test`")
    parser.add_argument("--processes", type=int, default=1, help="chapters at once (%(default)s)")
    options = parser.parse_args(arguments)
    chosen = [Path(slug).stem for slug in options.slugs] or slugs(ROOT)
    cases = drawn(options.seed) if options.seed else [(slug, name) for slug in chosen for name in options.how]
    found = {}
    with ProcessPoolExecutor(options.processes) as pool:
        for case, (cells, seconds) in zip(cases, pool.map(_timed, cases), strict=True):
            found[case] = cells
            print(f"{' '.join(case)}: {len(cells)} cells differ, took {seconds:.0f} s", flush=True)
            for number, text in cells.items():
                print(f"cell {number}:\n{text}\n", flush=True)
    print(table(found.items()))
    return any(found.values())


if __name__ == "__main__":
    sys.exit(main())
