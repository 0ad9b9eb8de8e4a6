"""Works out the status and the verdict of a printed cell from the store of runs and the source text."""

import math
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import final

from gkalib.results import find
from gkalib.results.claims import OWN, Contrast, claims
from gkalib.results.verdicts import Judgment, together

from .claims import DATA, Cell, Papers
from .results_role import agrees, with_minus
from .runs import Runs, Series, command
from .source import find_test, says

STATUSES = ("exact", "full", "reduced", "ready", "open")
NO_CELL = "words"  # the status of what is shown and not counted
COUNTED = ("agrees", "differs", "rounding", "paper's error")
"""The verdicts of exact cells."""
ELSEWHERE = {"reproduced": "consistent, other data", "as good as": "consistent, other data"}
TRAINED = (
    "reproduced",
    "as good as",
    "partly",
    *dict.fromkeys(ELSEWHERE.values()),
    "not reproduced",
    *OWN.values(),
    "undecided",
)
"""The verdicts of runs."""
WORST = ("paper's error", "differs", "not reproduced", "undecided", "partly", "rounding", "")
MEASURED = ("full", "reduced")
SAME = 0.02  # times that differ by no more are taken for the same
NUMBER = re.compile(r"[-+\N{MINUS SIGN}]?\d[\d,]*(?:\.\d+)?(?:e\d+)?")


@final
@dataclass(frozen=True, kw_only=True)
class Proof:
    """What stands behind a cell.

    Args:
        status: one of ``STATUSES``, or ``NO_CELL``.
        verdict: one of ``COUNTED`` or ``TRAINED``, or nothing where nothing was decided.
        compares: what was compared.
        ours: our number, or two of them.
        reason: where it comes from, what is asserted, or what to type for it.
        scale: of the runs, in short.
    """

    status: str
    verdict: str = ""
    compares: str = ""
    ours: str = ""
    reason: str = ""
    scale: str = ""


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
            ValueError: if the evidence names a test, a record, a recipe, a claim or a cell that is not there.
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
        order = (NO_CELL, *STATUSES)
        best = min(weighed, key=lambda one: order.index(one.status))
        if cell.verdict and best.verdict == "agrees":
            raise ValueError(f"is called {cell.verdict!r}, but it agrees")
        elsewhere = [
            f"elsewhere {one.ours} {one.reason}"
            for one in weighed
            if one is not best and one.status in MEASURED
        ]
        return replace(best, reason="; ".join(filter(None, (best.reason, *elsewhere))))

    def _weigh(self, cell: Cell, kind: str, rest: str = "") -> Proof:
        if kind in ("open", "words"):
            return Proof(status="open" if kind == "open" else NO_CELL)
        if kind in ("train", "study", "core", "evaluated", "looked", "bench"):
            return self._run(cell, kind, rest)
        weigh = {
            "test": self._test,
            "count": self._count,
            "cells": self._cells,
            "look": self._look,
            "decide": self._decide,
        }
        if kind not in weigh:
            raise ValueError(f"evidence of kind {kind!r} is unknown")
        return weigh[kind](cell, rest)

    def _test(self, cell: Cell, rest: str) -> Proof:
        """A named test, which has to exist and to say what it asserts; that it passes, the test run sees."""
        if find_test(self.root, rest) is None:
            raise ValueError(f"the test {rest} does not exist")
        said = says(self.root, rest).removesuffix(".")
        if not said:
            raise ValueError(f"the test {rest} does not say what it asserts")
        verdict = cell.verdict or "agrees"
        reason = f"asserted by {rest}: {said}"
        return Proof(status="exact", verdict=verdict, compares=cell.compares, reason=reason)

    def _count(self, cell: Cell, rest: str) -> Proof:
        """A count, or one over another, to the printed digits."""
        values = [find(f"counts/{key}", root=self.papers.store)[1] for key in rest.split(" / ")]
        value = values[0] / values[1] if len(values) == 2 else values[0] / cell.unit
        whole = len(values) == 1 and isinstance(values[0], int)
        printed = number(cell.printed)
        places = min(4, len(printed.partition(".")[2]) + 2)  # two more than are printed
        ours = f"{values[0]:,}" if whole else with_minus(f"{value:.{places}f}")
        verdict = "agrees" if agrees(printed, value) else cell.verdict or "differs"
        reason = (
            f"asserted by tests/experiments/test_counts.py: {rest.replace(' / ', ' over ')}, counted anew"
        )
        return Proof(status="exact", verdict=verdict, compares="value", ours=ours, reason=reason)

    def _cells(self, cell: Cell, rest: str) -> Proof:
        """What is said of other cells of the paper: the weakest status, and a fault in any is one in all."""
        where, column, *rows = rest.split("|")
        known = self.papers.cells[cell.paper].values()
        named = [one for one in known if (one.where, one.column) == (where, column)]
        named = [one for one in named if not rows or one.row in rows]
        if not named or (rows and len(named) != len(rows)):
            raise ValueError(f"there are no cells {rest!r}")
        proofs = [self.proof(one) for one in named]
        status = max((one.status for one in proofs), key=STATUSES.index)
        agreed = status == "exact" and all(one.verdict == "agrees" for one in proofs)
        if agreed and not within([one.printed for one in named], cell.printed):
            raise ValueError(f"says {cell.printed}, and {rest} says otherwise")
        verdicts = {one.verdict for one in proofs}
        return Proof(
            status=status,
            verdict=verdicts.pop() if len(verdicts) == 1 else min(verdicts, key=_rank),
            compares=cell.compares,
            ours=", ".join(one.ours for one in proofs if one.ours) if len(proofs) < 3 else "",
            reason=f"from the cells of {where.lower()}",
        )

    def _look(self, cell: Cell, rest: str) -> Proof:
        """A figure of a trained run: that which the record holds under its name, with enough panels."""
        run, figure, wanted = rest.split(" ")
        recipe, arm = run.split("/")
        self.runs.known("train", recipe, arm)
        names, _, panels = wanted.partition("/")
        axes, _, least = panels.partition(":")
        looks = self.runs.newest("looking", f"{recipe}-{arm}")
        stored = self.runs.panels(looks[0], names.split("+"), axes.split("/") if axes else []) if looks else 0
        if looks and stored >= int(least or 1):
            series = Series(status=looks[0].scale, values={one.seed: 0.0 for one in looks}, record=looks[0])
            scale = self.runs.scale_of(series.record)
            reason = f"the numbers of {names.replace('+', ', ')} stand {series.said}, {scale}"
            return Proof(status=series.status, reason=reason, scale=scale)
        how = f"python -m gkalib look RUN --paper {cell.paper} --keep, figure {figure}, "
        how += f"for a run of {recipe}, arm {arm}"
        if stored:
            how += f"; the record of a smaller run holds {stored} of {least or 1} panels"
        return Proof(status="ready", reason=how)

    def _decide(self, cell: Cell, rest: str) -> Proof:
        """Claims that an experiment decides, by its contrasts; several are one claim's parts."""
        experiment, *named = rest.split("|")
        found = claims(experiment, root=self.papers.store)
        judged = {one.claim: (one, seeds, verdict) for one, seeds, verdict in found.judged}
        unknown = [claim for claim in named if claim not in judged]
        if unknown or not named:
            raise ValueError(f"{experiment} decides no claim {(unknown or [''])[0]!r}")
        how = f"decided by {experiment}: {'; '.join(named)}"
        seeds = min(judged[claim][1] for claim in named)
        if not seeds:
            reason = f"python -m chapters.experiments {experiment} --seeds 5, and {how}"
            return Proof(status="ready", compares=cell.compares, reason=reason)
        behind = [record for claim in named for record in found.behind[claim]]
        first, *others = {record.arm: record for record in behind}.values()
        scale = self.runs.scale_of(first, beside=others)
        verdict = together(judged[claim][2].verdict for claim in named)
        if all(judged[claim][0].own for claim in named):
            verdict = OWN.get(verdict, verdict)
        elif first.scale != "full" and first.recipe["task"] not in DATA[cell.paper]:
            verdict = ELSEWHERE.get(verdict, verdict)
        return Proof(
            status=first.scale,
            verdict=verdict,
            compares=cell.compares or "order",
            ours="; ".join(dict.fromkeys(_measured(*judged[claim][::2]) for claim in named)),
            reason=f"{how}; {seeds} seeds, {scale}",
            scale=scale,
        )

    def _run(self, cell: Cell, kind: str, rest: str) -> Proof:
        """What runs measured, beside what is printed as far as their scale allows."""
        left, _, right = rest.partition(" < ")
        ours = self.runs.series(kind, left)
        theirs = self.runs.series(kind, right) if right else self._baseline(cell, kind, left)
        if ours is None or (right and theirs is None):
            return Proof(status="ready", reason=command(kind, left))
        scale = self.runs.scale_of(ours.record, cell)
        full = ours.status == "full" and not right
        # what a study measures has no full size that training has
        if cell.within is not None and (full or (kind == "study" and cell.compares == "value")):
            return self._value(cell, ours, scale)
        if cell.compares in ("ratio", "slower"):
            return self._ratio(cell, ours)
        shown = shown_as(ours.mean, cell)
        if right and theirs is not None:
            first, second = names(left, right)
            shown = f"{first} {shown}, {second} {shown_as(theirs.mean, cell)}"
        elif cell.compares == "sign" and theirs is not None and theirs.status == ours.status:
            shown = f"{shown} against {shown_as(theirs.mean, cell)}"
        reason = f"{ours.said}, {scale}" if scale else ours.said
        if right:  # a claim, which only an experiment with its threshold decides
            reason = f"{reason}: no verdict, which takes an experiment of five seeds"
        verdict = "undecided" if right else ""
        return Proof(
            status=ours.status,
            verdict=verdict,
            compares=cell.compares,
            ours=shown,
            reason=reason,
            scale=scale,
        )

    def _value(self, cell: Cell, ours: Series, scale: str) -> Proof:
        """Ours beside what is printed, within what is allowed."""
        assert cell.within is not None
        near = abs(ours.mean / cell.unit - float(number(cell.printed))) <= cell.within
        return Proof(
            status=ours.status,
            verdict="reproduced" if near else "not reproduced",
            compares="value",
            ours=shown_as(ours.mean, cell),
            reason=f"{ours.said}, {scale}; up to {cell.within:g} away is taken to agree",
            scale=scale,
        )

    def _ratio(self, cell: Cell, ours: Series) -> Proof:
        """On which side of 1 a ratio of times or of bytes on one card lies, and is printed to lie."""
        above = cell.compares != "slower" and float(number(cell.printed)) > 0
        same = abs(ours.mean - 1) <= SAME
        verdict = "undecided" if same else "reproduced" if (ours.mean > 1) == above else "not reproduced"
        return Proof(
            status=ours.status,
            verdict=verdict,
            compares="ratio",
            ours=f"a ratio of {ours.mean:.3g}",
            reason=ours.said,
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


def _measured(contrast: Contrast, found: Judgment) -> str:
    """A contrast as measured, with its interval and the smallest effect that matters."""
    if not math.isfinite(found.estimate.value):
        return "nothing to measure in these runs"
    times = 100 if contrast.unit == "points" else 1
    value, low, high = (times * one for one in (found.estimate.value, found.low, found.high))
    said = with_minus(f"{value:.3g} {contrast.unit}, from {low:.3g} to {high:.3g}")
    return said + (f", δ {times * contrast.delta:g}" if contrast.delta else "")


def names(left: str, right: str) -> tuple[str, str]:
    """What tells two keys apart: their arms, else their metrics in words."""
    one, other = left.split("/", 2), right.split("/", 2)
    part = 1 if one[1] != other[1] else 2
    return one[part].replace("_", " "), other[part].replace("_", " ")


def within(printed: list[str], said: str) -> bool:
    """Whether numbers lie between the least and the greatest that a sentence names, but for their signs."""
    ends = [abs(float(one.replace(",", ""))) for one in re.findall(r"\d[\d,]*(?:\.\d+)?", said)]
    return all(min(ends) <= abs(float(number(one))) <= max(ends) for one in printed)


def _rank(verdict: str) -> int:
    """Worse verdicts first."""
    return WORST.index(verdict) if verdict in WORST else len(WORST)


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
    return with_minus(f"{value / cell.unit:.4g}")
