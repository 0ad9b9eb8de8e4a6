"""Works out the status and the verdict of a printed cell from the store of runs and the source text."""

import math
import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import final

from gkalib.results import find

from .claims import Cell, Papers
from .results_role import agrees
from .runs import Runs, Series, command
from .source import find_test

STATUSES = ("exact", "full", "reduced", "ready", "open")
WORST = ("paper's error", "differs", "undecided", "", "agrees")
MEASURED = ("full", "reduced")
SEEDS = 3  # from so many on, signs are read seed by seed
LOOK = re.compile(r"^from gkalib\.experiments\.look import", re.MULTILINE)
NUMBER = re.compile(r"[-+\N{MINUS SIGN}]?\d[\d,]*(?:\.\d+)?(?:e\d+)?")


@final
@dataclass(frozen=True, kw_only=True)
class Proof:
    """What stands behind a cell.

    Args:
        status: one of ``STATUSES``.
        verdict: one of ``claims.VERDICTS``, or nothing where nothing was compared.
        compares: what was compared.
        ours: our number, or two of them.
        reason: where it comes from, or what to type for it.
    """

    status: str
    verdict: str = ""
    compares: str = ""
    ours: str = ""
    reason: str = ""


@final
@dataclass
class Judge:
    """Judges the cells of the papers.

    Args:
        root: the repository.
        papers: its cells.
    """

    root: Path
    papers: Papers
    runs: Runs = field(init=False)
    _done: dict[tuple[str, tuple[str, str, str]], Proof] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """The runs are those of the papers' store."""
        self.runs = Runs(self.papers.store)

    def proof(self, cell: Cell) -> Proof:
        """The best of what stands behind a cell; of equals the first.

        Raises:
            ValueError: if the evidence names a test, a record, a recipe or a cell that is not there.
        """
        key = cell.paper, cell.place
        if key not in self._done:
            try:
                self._done[key] = self._best(cell)
            except ValueError as error:
                raise ValueError(f"papers: {cell.name}: {error}") from error
        return self._done[key]

    def _best(self, cell: Cell) -> Proof:
        weighed = [self._weigh(cell, *text.split(" ", 1)) for text in cell.evidence]
        if not weighed:
            raise ValueError("nothing is said to stand behind it")
        best = min(weighed, key=lambda one: STATUSES.index(one.status))
        if cell.verdict and best.verdict == "agrees":
            raise ValueError(f"is called {cell.verdict!r}, but it agrees")
        elsewhere = [
            f"elsewhere {one.verdict or 'not compared'}, {one.ours} {one.reason}"
            for one in weighed
            if one is not best and one.status in MEASURED
        ]
        return replace(best, reason="; ".join(filter(None, (best.reason, *elsewhere))))

    def _weigh(self, cell: Cell, kind: str, rest: str = "") -> Proof:
        if kind == "open":
            return Proof(status="open")
        if kind in ("train", "study", "core", "looked", "bench"):
            return self._run(cell, kind, rest)
        weigh = {"test": self._test, "count": self._count, "cells": self._cells, "look": self._look}
        if kind not in weigh:
            raise ValueError(f"evidence of kind {kind!r} is unknown")
        return weigh[kind](cell, rest)

    def _test(self, cell: Cell, rest: str) -> Proof:
        """A named test, which has to exist; that it passes is the test run's business."""
        if find_test(self.root, rest) is None:
            raise ValueError(f"the test {rest} does not exist")
        said = rest.split("::")[-1].removeprefix("test_").replace("_", " ")
        verdict = cell.verdict or "agrees"
        return Proof(status="exact", verdict=verdict, compares=cell.compares, reason=f"tested: {said}")

    def _count(self, cell: Cell, rest: str) -> Proof:
        """A count, or one over another, to the printed digits."""
        values = [find(f"counts/{key}", root=self.papers.store)[1] for key in rest.split(" / ")]
        value = values[0] / values[1] if len(values) == 2 else values[0] / cell.unit
        whole = len(values) == 1 and isinstance(values[0], int)
        ours = f"{values[0]:,}" if whole else f"{value:.4f}"
        verdict = "agrees" if agrees(number(cell.printed), value) else cell.verdict or "differs"
        return Proof(status="exact", verdict=verdict, compares="value", ours=ours)

    def _cells(self, cell: Cell, rest: str) -> Proof:
        """What is said of other cells of the paper: the weakest status, and a fault in any is one in all."""
        where, column, *rows = rest.split("|")
        known = self.papers.cells[cell.paper].values()
        named = [one for one in known if (one.where, one.column) == (where, column)]
        named = [one for one in named if not rows or one.row in rows]
        if not named or (rows and len(named) != len(rows)):
            raise ValueError(f"there are no cells {rest!r}")
        proofs = [self.proof(one) for one in named]
        return Proof(
            status=max((one.status for one in proofs), key=STATUSES.index),
            verdict=min((one.verdict for one in proofs), key=WORST.index),
            compares=cell.compares,
            ours=", ".join(one.ours for one in proofs if one.ours) if len(proofs) < 3 else "",
            reason=f"from the cells of {where.lower()}",
        )

    def _look(self, cell: Cell, rest: str) -> Proof:
        """A figure of a trained run, which the command ``look`` draws; a metric may tell that it did."""
        run, figure, *told = rest.split(" ")
        recipe, arm = run.split("/")
        self.runs.known("train", recipe, arm)
        looks = self.runs.newest("looking", f"{recipe}-{arm}")
        if looks and all(metric in looks[0].metrics for metric in told):
            scale = looks[0].scale
            series = Series(status=scale, values={one.seed: 0.0 for one in looks}, record=looks[0])
            return Proof(status=scale, reason=f"the figure {figure}, {series.said}")
        if any(f'"{figure}' in text for text in self.drawing) and self.drawing_is_tested:
            how = f"python -m gkalib look RUN --keep, figure {figure}, for a run of {recipe} --arm {arm}"
            return Proof(status="ready", reason=how)
        return Proof(status="open", reason=f"nothing draws the figure {figure} yet")

    @cached_property
    def drawing(self) -> list[str]:
        """The source of what names the figures of ``look``."""
        file = self.root / "gkalib" / "viz" / "figures.py"
        return [file.read_text(encoding="utf-8")] if file.is_file() else []

    @cached_property
    def drawing_is_tested(self) -> bool:
        """Whether a test imports the command."""
        tests = (self.root / "tests").rglob("test_*.py")
        return any(LOOK.search(test.read_text(encoding="utf-8")) for test in tests)

    def _run(self, cell: Cell, kind: str, rest: str) -> Proof:
        """What runs measured, beside what is printed as far as their scale allows."""
        left, _, right = rest.partition(" < ")
        ours = self.runs.series(kind, left)
        theirs = self.runs.series(kind, right) if right else self._baseline(cell, kind, left)
        if ours is None or (right and theirs is None):
            return Proof(status="ready", reason=command(kind, left))
        full = ours.status == "full" and not right
        if cell.within is not None and (full or cell.compares == "value"):
            return self._value(cell, ours)
        if cell.compares in ("ratio", "slower"):
            wanted = -1 if cell.compares == "slower" else sign(float(number(cell.printed)))
            verdict = decide([ours.mean - 1], wanted, cell.margin)
            shown = f"a ratio of {ours.mean:.3g}"
            return Proof(status=ours.status, verdict=verdict, compares="ratio", ours=shown, reason=ours.said)
        if cell.compares in ("order", "sign") and theirs is not None and theirs.status == ours.status:
            return self._difference(cell, ours, theirs, below=bool(right))
        return Proof(status=ours.status, ours=shown_as(ours.mean, cell), reason=ours.said)

    def _value(self, cell: Cell, ours: Series) -> Proof:
        """Ours beside what is printed, within what is allowed."""
        assert cell.within is not None
        near = abs(ours.mean / cell.unit - float(number(cell.printed))) <= cell.within
        return Proof(
            status=ours.status,
            verdict="agrees" if near else cell.verdict or "differs",
            compares="value",
            ours=shown_as(ours.mean, cell),
            reason=f"{ours.said}; up to {cell.within:g} away is taken to agree",
        )

    def _difference(self, cell: Cell, ours: Series, theirs: Series, *, below: bool) -> Proof:
        """The sign of a difference of ours beside that of the paper's; ``below`` says that it claims less."""
        wanted = -1
        if not below:
            base = self.papers.cells[cell.paper][cell.where, cell.baseline, cell.column]
            wanted = sign(float(number(cell.printed)) - float(number(base.printed)))
        pairs = [(value, theirs.values.get(seed)) for seed, value in ours.values.items()]
        differences = [one - other for one, other in pairs if other is not None]
        if len(differences) < len(pairs):
            differences = [ours.mean - theirs.mean]
        shown = f"{shown_as(ours.mean, cell)} against {shown_as(theirs.mean, cell)}"
        verdict = decide(differences, wanted, cell.margin * cell.unit) if wanted else ""
        return Proof(
            status=ours.status, verdict=verdict, compares=cell.compares, ours=shown, reason=ours.said
        )

    def _baseline(self, cell: Cell, kind: str, left: str) -> Series | None:
        """The same number of the baseline's row, in the same experiment."""
        if not cell.baseline:
            return None
        base = self.papers.cells[cell.paper][cell.where, cell.baseline, cell.column]
        for other, _, rest in (text.partition(" ") for text in base.evidence):
            if (other, rest.split("/")[0]) == (kind, left.split("/")[0]):
                return self.runs.series(kind, rest)
        return None


def decide(differences: list[float], wanted: int, margin: float) -> str:
    """Whether differences have the sign that the paper's has.

    From ``SEEDS`` seeds on, every one must have it, or every one the other; below that their mean must exceed
    the margin.
    """
    mean = sum(differences) / len(differences)
    signs = {sign(one) for one in differences}
    unclear = len(signs) > 1 if len(differences) >= SEEDS else abs(mean) <= margin
    if unclear or mean == 0:
        return "undecided"
    return "agrees" if sign(mean) == wanted else "differs"


def number(printed: str) -> str:
    """The first number in what is printed.

    Raises:
        ValueError: if there is none.
    """
    found = NUMBER.search(printed)
    if found is None:
        raise ValueError(f"there is no number in {printed!r}")
    return found[0].replace(",", "").replace("\N{MINUS SIGN}", "-")


def shown_as(value: float, cell: Cell) -> str:
    """Ours in the units of what is printed, to four digits."""
    return f"{value / cell.unit:.4g}"


def sign(value: float) -> int:
    """-1, 0 or 1."""
    return int(math.copysign(1, value)) if value else 0
