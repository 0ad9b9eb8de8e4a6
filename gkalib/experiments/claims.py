"""What runs say of the claims of an experiment, as a table: the claim, the paper's word, ours, a verdict."""

import html
import math
from dataclasses import dataclass
from importlib import import_module
from typing import final

from gkalib import results
from gkalib.experiments.decisions import Contrast, decide
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
                _number(one, found.estimate.value) if seeds else "–",
                f"{_number(one, found.low)} to {_number(one, found.high)} {one.unit}" if seeds > 1 else "–",
                _expected(one),
                str(seeds),
                found.verdict if seeds else "not run",
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
        head = "".join(f"<th>{name}</th>" for name in HEADER)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in self.cells
        )
        return f'<table class="gkalib-claims"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


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
    there = name in results.experiments()
    recipes = {study.arm: study.recorded() for study in module.studies()}
    newest: dict[tuple[str, int], results.Record] = {}
    for record in results.load(name, scale="reduced") if there else []:  # the newest comes first
        if record.recipe == recipes.get(record.arm):
            newest.setdefault((record.arm, record.seed), record)
    records = [*newest.values()]
    judged = decide(records, contrasts, checks)
    seeds = {arm: {record.seed for record in records if record.arm == arm} for arm in recipes}
    return ClaimsTable(
        name,
        tuple(
            (one, len(set.intersection(*(seeds[arm] for arm in one.weights))), judged[one.claim])
            for one in contrasts
        ),
    )


def _number(one: Contrast, value: float) -> str:
    """A value in the unit of its table, to a tenth of δ."""
    if not math.isfinite(value):
        return "–"
    factor = 100 if one.unit == "points" else 1
    digits = max(0, 1 - math.floor(math.log10(one.delta * factor))) if one.delta else 1
    return f"{value * factor:+.{digits}f}".replace("-", "−")


def _expected(one: Contrast) -> str:
    """What would bear the claim out: a side of zero and δ, or an interval."""
    if one.between:
        return "in {:g} to {:g}".format(*one.between)
    side = {1: "above 0, δ = ", -1: "below 0, δ = ", 0: "within ±"}[one.sign]
    return f"{side}{one.delta * (100 if one.unit == 'points' else 1):g}"
