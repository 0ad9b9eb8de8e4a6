"""Every variant of a comparison at one budget in one table: its outcome, how far from softmax, its costs."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import final

from gkalib import results
from gkalib.experiments.claims import claims, newest, number, recorded, word

MEASURED = "one-budget-costs"
COSTS = {
    "parameters": ("{:,.0f}", 1),
    "flops": ("{:.1f}", 1e6),
    "milliseconds": ("{:.0f}", 1),
    "mebibytes": ("{:.1f}", 1),
}
NAMES = ("parameters", "Mflop", "ms", "MiB")


@final
@dataclass(frozen=True)
class Standings:
    """The variants of an experiment as rows, which a page lets a reader sort and filter.

    Args:
        header: the names of the columns.
        cells: the rows as text; what was not run is a dash.
    """

    header: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        return results.as_text(self.header, self.cells)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return results.as_html(self.header, self.cells, kind="gkalib-standings")


def standings(name: str) -> Standings:
    """What became of each variant of an experiment, and what a training step of it costs.

    A row has the variant, the mean of its outcome over seeds and their standard deviation, the difference
    from softmax attention with its adjusted interval and verdict, the learning rate, parameters, millions of
    operations for one item, milliseconds of a training step and the mebibytes that its forward pass keeps.

    Args:
        name: ``one-budget-images`` or ``one-budget-text``.

    Raises:
        ValueError: if there is no such comparison.

    Taught in: chapter 30.
    """
    module = _module(name)
    studies, contrasts = module.studies(), module.CONTRASTS
    judged = {next(iter(one.weights)): (one, found) for one, _, found in claims(name).judged}
    found, spent = outcomes(name), step_costs(name)
    factor, digits = (100, 1) if contrasts[0].unit == "points" else (1, 3)
    rows = []
    for study in studies:
        values = [factor * value for value in found.get(study.arm, {}).values()]
        compared = ("–", "–", "–")
        if study.arm in judged and len(values) > 1:
            one, of = judged[study.arm]
            interval = f"{number(one, of.low)} to {number(one, of.high)}"
            compared = (number(one, of.estimate.value), interval, word(one, of))
        rows.append(
            (
                study.arm,
                f"{statistics.mean(values):.{digits}f}" if values else "–",
                f"{statistics.stdev(values):.{digits}f}" if len(values) > 1 else "–",
                *compared,
                f"{study.lr:g}",
                *_written(spent.get(study.arm)),
            )
        )
    outcome = "accuracy, %" if contrasts[0].metric == "accuracy" else "loss, nats"
    header = ("variant", outcome, "spread", "minus softmax", "interval", "verdict", "rate", *NAMES)
    return Standings(header, tuple(rows))


def outcomes(name: str) -> dict[str, dict[int, float]]:
    """The accuracy or the loss of each variant that was trained, by seed.

    Args:
        name: as for ``standings``.
    """
    module = _module(name)
    runs: dict[str, dict[int, float]] = {}
    for record in newest(module.studies()):
        runs.setdefault(record.arm, {})[record.seed] = float(record.metrics[module.CONTRASTS[0].metric])
    return runs


def step_costs(name: str) -> dict[str, dict[str, float]]:
    """What a training step of each variant costs, by its newest record: the metrics of ``one-budget-costs``.

    Args:
        name: as for ``standings``.
    """
    _module(name)
    kind, spent = f"{name.rsplit('-', 1)[-1]}-", {}
    for record in recorded(MEASURED):
        if record.arm.startswith(kind):
            spent.setdefault(
                record.arm.removeprefix(kind), {cost: float(record.metrics[cost]) for cost in COSTS}
            )
    return spent


def _module(name: str) -> ModuleType:
    """The comparison's file."""
    names = ("one-budget-images", "one-budget-text")
    if name not in names:
        raise ValueError(f"standings: no comparison {name!r}. Known: {', '.join(names)}")
    return import_module(f"gkalib.experiments.{name.replace('-', '_')}")


def _written(costs: Mapping[str, float] | None) -> tuple[str, ...]:
    """The costs of a step as text."""
    if costs is None:
        return ("–",) * len(COSTS)
    return tuple(form.format(costs[cost] / unit) for cost, (form, unit) in COSTS.items())
