"""Every variant of a comparison at one budget in one table: its outcome, how far from softmax, its costs."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import final

from gkalib import results
from gkalib.experiments import experiment
from gkalib.results.claims import Stated, claims, difference, newest, number, stated, word

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
    said = comparison(name)
    judged = {next(iter(one.weights)): (one, found) for one, _, found in claims(name, said).judged}
    found, spent = outcomes(name), step_costs(name)
    factor, digits = (100, 1) if said.contrasts[0].unit == "points" else (1, 3)
    rows = []
    for arm, recipe in said.arms.items():
        values = [factor * value for value in found.get(arm, {}).values()]
        compared = ("–", "–", "–")
        if arm in judged and len(values) > 1:
            one, of = judged[arm]
            interval = f"{number(one, of.low)} to {number(one, of.high)}"
            compared = (number(one, of.estimate.value), interval, word(one, of))
        rows.append(
            (
                arm,
                f"{statistics.mean(values):.{digits}f}" if values else "–",
                f"{statistics.stdev(values):.{digits}f}" if len(values) > 1 else "–",
                *compared,
                f"{recipe['lr']:g}",
                *_written(spent.get(arm)),
            )
        )
    outcome = "accuracy, %" if said.contrasts[0].metric == "accuracy" else "loss, nats"
    header = ("variant", outcome, "spread", "minus softmax", "interval", "verdict", "rate", *NAMES)
    return Standings(header, tuple(rows))


def comparison(name: str) -> Stated:
    """The claims of a comparison, and one more for each variant that the code has had since.

    Raises:
        ValueError: if there is no such comparison.
    """
    names = ("one-budget-images", "one-budget-text")
    if name not in names:
        raise ValueError(f"standings: no comparison {name!r}. Known: {', '.join(names)}")
    said, arms = stated(name), {study.arm: study.recorded() for study in experiment(name)[0]}
    new = (
        replace(
            said.contrasts[0],
            claim=f"{arm} is as good as softmax attention",
            weights=difference(arm, "softmax"),
        )
        for arm in arms
        if arm not in said.arms
    )
    return replace(said, contrasts=(*said.contrasts, *new), arms=arms)


def outcomes(name: str) -> dict[str, dict[int, float]]:
    """The accuracy or the loss of each variant that was trained, by seed.

    Args:
        name: as for ``standings``.
    """
    said = comparison(name)
    runs: dict[str, dict[int, float]] = {}
    for record in newest(name, said.arms):
        runs.setdefault(record.arm, {})[record.seed] = float(record.metrics[said.contrasts[0].metric])
    return runs


def step_costs(name: str) -> dict[str, dict[str, float]]:
    """What a training step of each variant costs, by its newest record: the metrics of ``one-budget-costs``.

    Args:
        name: as for ``standings``.
    """
    comparison(name)
    kind, spent = f"{name.rsplit('-', 1)[-1]}-", {}
    for record in results.load(MEASURED) if MEASURED in results.experiments() else []:
        if record.arm.startswith(kind):
            spent.setdefault(
                record.arm.removeprefix(kind), {cost: float(record.metrics[cost]) for cost in COSTS}
            )
    return spent


def _written(costs: Mapping[str, float] | None) -> tuple[str, ...]:
    """The costs of a step as text."""
    if costs is None:
        return ("–",) * len(COSTS)
    return tuple(form.format(costs[cost] / unit) for cost, (form, unit) in COSTS.items())
