"""What runs say of the claims of an experiment, as a table: the claim, the paper's word, ours, a verdict."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import final

from gkalib import results
from gkalib.experiments.decisions import Contrast, decide
from gkalib.experiments.study import Study
from gkalib.results.verdicts import Judgment

HEADER = ("claim", "paper", "ours", "interval", "δ", "seeds", "verdict")


@final
@dataclass(frozen=True)
class ClaimsTable:
    """The claims of an experiment and what came of them; a notebook shows it as HTML, a terminal as text.

    Args:
        experiment: its name.
        judged: each claim, how many seeds all its arms have, and the judgment. The interval is adjusted for
            the other primary claims of the table; claims beside them have their own.
    """

    experiment: str
    judged: tuple[tuple[Contrast, int, Judgment], ...]

    @property
    def cells(self) -> list[list[str]]:
        """The rows as text; what was not run is a dash."""
        return [
            [
                one.claim + ("" if one.primary else " (beside)"),
                one.paper or "–",
                number(one, found.estimate.value) if seeds else "–",
                interval(one, found),
                _expected(one),
                str(seeds),
                word(one, found) if seeds else "not run",
            ]
            for one, seeds, found in self.judged
        ]

    def __str__(self) -> str:
        lines = [
            "\n  ".join(
                [row[0], *(f"{name}: {cell}" for name, cell in zip(HEADER[1:], row[1:], strict=True))]
            )
            for row in self.cells
        ]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return results.as_html(HEADER, self.cells, kind="gkalib-claims")


def claims(name: str) -> ClaimsTable:
    """The claims of an experiment and what its records say of them.

    Args:
        name: of an experiment whose file has ``CONTRASTS``.

    Raises:
        ValueError: if there is no such experiment.
    """
    try:
        module = import_module(f"gkalib.experiments.{name.replace('-', '_')}")
        contrasts, checks = module.CONTRASTS, module.CHECKS
    except (ModuleNotFoundError, AttributeError):
        raise ValueError(f"claims: no experiment {name!r} states what decides it") from None
    records = newest(module.studies())
    judged = decide(records, contrasts, checks)
    seeds = {
        study.arm: {record.seed for record in records if record.arm == study.arm}
        for study in module.studies()
    }
    return ClaimsTable(
        name,
        tuple(
            (one, len(set.intersection(*(seeds[arm] for arm in one.weights))), judged[one.claim])
            for one in contrasts
        ),
    )


def recorded(name: str) -> list[results.Record]:
    """The runs of an experiment, none where it has not run yet.

    Raises:
        ValueError: where there are no records at all; the message says what to type.
    """
    return results.load(name) if name in results.experiments() or results.missing() else []


def newest(studies: Sequence[Study]) -> list[results.Record]:
    """The newest record of each arm and seed of an experiment whose recipe is the study's."""
    name = studies[0].experiment
    recipes = {study.arm: study.recorded() for study in studies}
    found: dict[tuple[str, int], results.Record] = {}
    for record in recorded(name):
        if record.scale == "reduced" and record.recipe == recipes.get(record.arm):
            found.setdefault((record.arm, record.seed), record)
    return [*found.values()]


def interval(one: Contrast, found: Judgment) -> str:
    """The ends of an interval in the unit of its table; a dash where nothing was measured."""
    if not math.isfinite(found.low):
        return "–"
    return f"{number(one, found.low)} to {number(one, found.high)} {one.unit}"


def number(one: Contrast, value: float) -> str:
    """A value in the unit of its table, to a tenth of δ."""
    if not math.isfinite(value):
        return "–"
    factor = 100 if one.unit == "points" else 1
    digits = max(0, 1 - math.floor(math.log10(one.delta * factor))) if one.delta else 1
    return f"{value * factor:+.{digits}f}".replace("-", "−")


def word(one: Contrast, found: Judgment) -> str:
    """The verdict as a table shows it: what is not as good as another is *ahead* of it or *behind*."""
    if found.verdict != "not reproduced" or one.sign or one.between:
        return found.verdict
    return "ahead" if (found.estimate.value > 0) == (one.metric == "accuracy") else "behind"


def _expected(one: Contrast) -> str:
    """What would bear the claim out: a side of zero and δ, or an interval."""
    if one.between:
        return "in {:g} to {:g}".format(*one.between)
    side = {1: "above 0, δ = ", -1: "below 0, δ = ", 0: "within ±"}[one.sign]
    return f"{side}{one.delta * (100 if one.unit == 'points' else 1):g}"
