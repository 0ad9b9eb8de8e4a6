"""Many arms beside one: how far each is from it, what each costs, and which learning rates it was given."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage

from gkalib.results.verdicts import Judgment
from gkalib.viz import style

Number = int | float

# by verdict: marker, color, whether it is filled; a reader without color sees the marker
MARKS = {
    "as good as": ("o", "blue", True),
    "not": ("s", "vermilion", True),
    "undecided": ("o", "black", False),
}


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
    axes: Axes, cost: Mapping[str, Number], outcome: Mapping[str, Number], *, larger: bool
) -> list[str]:
    """Draw outcome against cost, a named dot for each arm, those of ``front`` filled and joined by steps.

    Args:
        axes: where to draw; limits and scales have to be set before, since names keep clear of one another
            on them.
        cost, outcome, larger: as for ``front``.

    Returns:
        The arms of the front.

    Taught in: chapter 30.
    """
    kept = front(cost, outcome, larger=larger)
    steps = np.array([(cost[arm], outcome[arm]) for arm in kept])
    axes.step(*steps.T, where="post", color=style.PALETTE["sky"], linewidth=1.2)
    for arm, value in outcome.items():
        shade = style.PALETTE["blue" if arm in kept else "black"]
        axes.plot(cost[arm], value, "o", color=shade, fillstyle="full" if arm in kept else "none")
    _names(axes, {arm: (cost[arm], value) for arm, value in outcome.items()}, kept)
    return kept


def rates(
    axes: Axes, tried: Mapping[str, Mapping[float, float]], chosen: Mapping[str, float], *, worst: Number
) -> AxesImage:
    """Draw how much each learning rate costs each arm, as a map: its loss above the arm's lowest one.

    Args:
        axes: where to draw; a row is an arm and a column a rate. A rate that was not tried is blank.
        tried: the loss at each rate, of each arm.
        chosen: the rate of each arm that a dot marks.
        worst: what the darkest color stands for; a larger loss has this color too.

    Taught in: chapter 30.
    """
    known = sorted({rate for losses in tried.values() for rate in losses})
    above = np.full((len(tried), len(known)), np.nan)
    for row, (arm, losses) in enumerate(tried.items()):
        lowest = min(losses.values())
        for rate, loss in losses.items():
            above[row, known.index(rate)] = min(loss - lowest, worst)
        axes.plot(known.index(chosen[arm]), row, "o", color="black", markersize=4)
    image = axes.imshow(above, cmap=style.SEQUENTIAL + "_r", vmin=0, vmax=worst, aspect="auto")
    axes.set_xticks(range(len(known)), [f"{rate:g}" for rate in known], rotation=60)
    axes.set_yticks(range(len(tried)), list(tried))
    return image


def _names(axes: Axes, points: Mapping[str, tuple[float, float]], bold: Sequence[str]) -> None:
    """Write names beside points where they cover least, of other names and of points."""
    per_point = axes.figure.dpi / 72
    taken = [
        (x - 3 * per_point, y - 3 * per_point, x + 3 * per_point, y + 3 * per_point)
        for x, y in axes.transData.transform(list(points.values()))
    ]
    size, inside = 7.5, tuple(axes.get_window_extent().extents)
    for arm, point in points.items():
        x, y = axes.transData.transform(point)
        wide, high = 0.58 * size * len(arm) * per_point, 1.1 * size * per_point
        places = [
            (side, up, x + (5 * per_point if side > 0 else -5 * per_point - wide), y + up * high - high / 2)
            for up in (0, 0.7, -0.7, 1.4, -1.4, 2.1, -2.1)
            for side in (1, -1)
        ]
        boxes = [(left, low, left + wide, low + high) for _, _, left, low in places]
        covered = [
            sum(_common(box, other) for other in taken) + wide * high - _common(box, inside) for box in boxes
        ]
        best = int(np.argmin(covered))
        side, up = places[best][:2]
        taken.append(boxes[best])
        axes.annotate(
            arm,
            point,
            xytext=(5 * side, up * 1.1 * size),
            textcoords="offset points",
            ha="left" if side > 0 else "right",
            va="center",
            fontsize=size,
            color=style.PALETTE["blue" if arm in bold else "black"],
        )


def _common(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """The area that two boxes share."""
    wide = min(one[2], other[2]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[1], other[1])
    return max(wide, 0.0) * max(high, 0.0)
