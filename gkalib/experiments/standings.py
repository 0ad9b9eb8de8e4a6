"""Every variant of a comparison at one budget in one table: its outcome, how far from softmax, its costs."""

import statistics
from dataclasses import dataclass
from importlib import import_module
from typing import final

from gkalib import results
from gkalib.experiments.claims import claims, newest, number

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
    names = ("one-budget-images", "one-budget-text")
    if name not in names:
        raise ValueError(f"standings: no comparison {name!r}. Known: {', '.join(names)}")
    module = import_module(f"gkalib.experiments.{name.replace('-', '_')}")
    studies, contrasts = module.studies(), module.CONTRASTS
    metric, unit = contrasts[0].metric, contrasts[0].unit
    judged = {next(iter(one.weights)): (one, found) for one, _, found in claims(name).judged}
    records = newest(studies)
    factor, digits = (100, 1) if unit == "points" else (1, 3)
    rows = []
    for study in studies:
        runs = [record for record in records if record.arm == study.arm]
        outcomes = [factor * record.metrics[metric] for record in runs]
        compared = ("–", "–", "–")
        if study.arm in judged and len(runs) > 1:
            one, found = judged[study.arm]
            interval = f"{number(one, found.low)} to {number(one, found.high)}"
            compared = (number(one, found.estimate.value), interval, found.verdict)
        rows.append(
            (
                study.arm,
                f"{statistics.mean(outcomes):.{digits}f}" if runs else "–",
                f"{statistics.stdev(outcomes):.{digits}f}" if len(runs) > 1 else "–",
                *compared,
                f"{study.lr:g}",
                *_costs(f"{name.rsplit('-', 1)[-1]}-{study.arm}"),
            )
        )
    outcome = "accuracy, %" if metric == "accuracy" else "loss, nats"
    header = ("variant", outcome, "spread", "minus softmax", "interval", "verdict", "rate", *NAMES)
    return Standings(header, tuple(rows))


def _costs(arm: str) -> tuple[str, ...]:
    """Of a training step, from the newest record of it."""
    name = "one-budget-costs"
    found = results.load(name) if name in results.experiments() else []
    record = next((record for record in found if record.arm == arm), None)
    if record is None:
        return ("–",) * len(COSTS)
    return tuple(form.format(record.metrics[cost] / unit) for cost, (form, unit) in COSTS.items())
