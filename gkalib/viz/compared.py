"""Many arms side by side: how far each is from one, what each costs, which learning rates it was given."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle

from gkalib.results.verdicts import Judgment
from gkalib.viz import names, style

Number = int | float

# by verdict: marker, color, whether it is filled; a reader without color sees the marker
MARKS = {
    "as good as": ("o", "blue", True),
    "not reproduced": ("s", "vermilion", True),
    "undecided": ("o", "black", False),
}
HALF = 0.15  # of what lies between two contrasts of a row


def intervals(
    axes: Axes,
    found: Mapping[str, Judgment],
    *,
    delta: Number,
    order: Sequence[str] | None = None,
    limits: tuple[Number, Number] | None = None,
    factor: Number = 1,
) -> None:
    """Draw a difference and its interval in a row for each arm, marked by its verdict, over the band ±δ.

    Args:
        axes: where to draw; its rows are named by their arms.
        found: what became of each arm.
        delta: δ, in the unit of the differences.
        order: the arms from the top, those without a judgment as empty rows; by difference where not given,
            the largest on top.
        limits: of the axis, times ``factor``; a difference outside is written at the edge.
        factor: of everything that is drawn, 100 where shares are shown in points.

    Raises:
        ValueError: if an order leaves out an arm that has a judgment.

    Taught in: chapter 30.
    """
    rows = order or sorted(found, key=lambda arm: -found[arm].estimate.value)
    if missing := found.keys() - set(rows):
        raise ValueError(f"intervals: the order has no row for {', '.join(sorted(missing))}")
    axes.axvspan(-delta * factor, delta * factor, color="gray", alpha=0.15, linewidth=0)
    axes.axvline(0, color="gray", linewidth=0.8)
    for place, arm in enumerate(rows):
        if arm not in found:
            continue
        one = found[arm]
        marker, color, filled = MARKS[one.verdict]
        low, value, high = (factor * x for x in (one.low, one.estimate.value, one.high))
        shade, fill = style.PALETTE[color], "full" if filled else "none"
        if limits and not limits[0] <= value <= limits[1]:
            right = value > limits[1]
            axes.plot(limits[right], place, ">" if right else "<", color=shade, clip_on=False)
            text = f"{value:+.2g}".replace("-", "−")
            axes.annotate(
                text,
                (limits[right], place),
                xytext=(-7 if right else 7, 0),
                textcoords="offset points",
                ha="right" if right else "left",
                va="center",
                fontsize=8,
                color=shade,
            )
            continue
        axes.plot([low, high], [place] * 2, color=shade, linewidth=1.2)
        axes.plot(value, place, marker, color=shade, fillstyle=fill, markersize=5)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    if limits:
        axes.set_xlim(limits)


def contrasts(
    axes: Axes,
    rows: Mapping[str, Mapping[str, str]],
    found: Mapping[str, Judgment],
    values: Mapping[str, Sequence[Number]],
) -> None:
    """Draw contrasts in rows, each with its interval and a dot for each seed; a row's lie one below another.

    Args:
        axes: where to draw.
        rows: by name from the top, the row's contrasts by their colors of the palette.
        found: what became of each contrast.
        values: of each contrast, one for each seed.

    Taught in: chapter 21.
    """
    axes.axvline(0, color="gray", linewidth=0.8)
    for place, row in enumerate(rows.values()):
        heights = place + HALF * np.arange(1 - len(row), len(row), 2)
        for height, (shade, name) in zip(heights, row.items(), strict=True):
            color = style.PALETTE[shade]
            axes.plot([found[name].low, found[name].high], [height] * 2, color=color, linewidth=1)
            axes.plot(values[name], [height] * len(values[name]), "o", color=color, markersize=4)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.invert_yaxis()


def front(cost: Mapping[str, Number], outcome: Mapping[str, Number], *, larger: bool) -> list[str]:
    """The arms that no other beats in both cost and outcome, the cheapest first.

    Args:
        cost: of each arm, the lower the better.
        outcome: of the same arms.
        larger: whether a larger outcome is better.
    """
    best, kept = -np.inf, []
    for arm in sorted(outcome, key=lambda arm: (cost[arm], -outcome[arm] if larger else outcome[arm])):
        value = outcome[arm] if larger else -outcome[arm]
        if value > best:
            best = value
            kept.append(arm)
    return kept


def trade(
    axes: Axes,
    cost: Mapping[str, Number],
    outcome: Mapping[str, Number],
    *,
    larger: bool,
    beside: Sequence[np.ndarray] = (),
) -> list[str]:
    """Draw outcome against cost, a named dot for each arm, those of ``front`` filled and joined by steps.

    Args:
        axes: where to draw; limits and scales have to be set before, since names keep clear of one another
            on them.
        cost, outcome, larger: as for ``front``.
        beside: curves [points, 2] that are drawn already, which names keep clear of too.

    Returns:
        The arms of the front.

    Taught in: chapter 30.
    """
    kept = front(cost, outcome, larger=larger)
    ends = [(cost[arm], outcome[arm]) for arm in kept]
    corners = [(after[0], before[1]) for before, after in pairwise(ends)]
    steps = np.array([*(point for pair in zip(ends, corners, strict=False) for point in pair), ends[-1]])
    axes.plot(*steps.T, color=style.PALETTE["sky"], linewidth=1.2)
    colors = {arm: style.PALETTE["blue" if arm in kept else "black"] for arm in outcome}
    for arm, value in outcome.items():
        axes.plot(cost[arm], value, "o", color=colors[arm], fillstyle="full" if arm in kept else "none")
    points = {arm: (cost[arm], value) for arm, value in outcome.items()}
    names.write(axes, points, colors=colors, lines=[steps, *beside])
    return kept


def rates(
    axes: Axes, tried: Mapping[str, Mapping[float, float]], chosen: Mapping[str, float], *, worst: Number
) -> AxesImage:
    """Draw how much each learning rate costs each arm, as a map: its loss above the arm's lowest one.

    Args:
        axes: where to draw; a row is an arm and a column a rate. A rate that was not tried is blank, one at
            which the loss became infinite is a gray cell with a cross.
        tried: the loss at each rate, of each arm.
        chosen: the rate of each arm that a dot marks.
        worst: what the darkest color stands for; a larger finite loss has this color too.

    Taught in: chapter 30.
    """
    known = sorted({rate for losses in tried.values() for rate in losses})
    above = np.full((len(tried), len(known)), np.nan)
    for row, (arm, losses) in enumerate(tried.items()):
        lowest = min(losses.values())
        for rate, loss in losses.items():
            place = known.index(rate)
            if math.isfinite(loss):
                above[row, place] = min(loss - lowest, worst)
                continue
            cell = (place - 0.5, row - 0.5)
            axes.add_patch(Rectangle(cell, 1, 1, facecolor="#DDDDDD", edgecolor="none"))
            axes.plot(place, row, "x", color=style.PALETTE["vermilion"], markersize=7, markeredgewidth=1.8)
        axes.plot(known.index(chosen[arm]), row, "o", color="black", markersize=4)
    image = axes.imshow(above, cmap=style.SEQUENTIAL + "_r", vmin=0, vmax=worst, aspect="auto")
    axes.set_xticks(range(len(known)), [f"{rate:g}" for rate in known], rotation=60)
    axes.set_yticks(range(len(tried)), list(tried))
    return image


def bars(costs: Mapping[str, Mapping[str, Number]], *, limits: tuple[Number, Number]) -> Figure:
    """Draw a panel of bars for each cost on a logarithmic scale, each with its value at its end.

    Args:
        costs: by the label of its axis, the value of each arm, the first on top; all have the same arms.
        limits: of all axes.

    Raises:
        ValueError: if the panels have different arms.

    Taught in: chapter 27.
    """
    arms = list(next(iter(costs.values())))
    if any(list(values) != arms for values in costs.values()):
        raise ValueError(f"bars: each cost needs the arms {', '.join(arms)}, in this order")
    figure, (panels,) = plt.subplots(1, len(costs), figsize=(style.COLUMN, 2.3), sharey=True, squeeze=False)
    for axes, (label, values) in zip(panels, costs.items(), strict=True):
        drawn = axes.barh(arms, list(values.values()), color=style.PALETTE["blue"])
        axes.bar_label(drawn, [f"{value:.2g}" for value in values.values()], padding=3)
        axes.set(xscale="log", xlabel=label, xlim=limits)
    panels[0].invert_yaxis()
    return figure
