"""Differences with intervals, outcomes against costs with names that keep clear, what learning rates cost."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle

from gkalib.results.verdicts import Judgment
from gkalib.viz import style

ROOM = 3.0  # points around a dot that stay free
DISTANCES = (5, 9, 14, 20, 27, 35)  # points from a dot to its name
DIRECTIONS = np.pi / 8 * np.arange(16)
LEADER = 8.0  # points between a dot and its name from which on a line joins them
ROUNDS = 8  # in which each name looks for a better place among the others
# by verdict: marker, color, whether it is filled; a reader without color sees the marker
VERDICTS = {
    "as good as": ("o", "blue", True),
    "not reproduced": ("s", "vermilion", True),
    "undecided": ("o", "black", False),
}
Number = int | float
Box = tuple[float, float, float, float]


def intervals(
    axes: Axes,
    found: Mapping[str, Judgment],
    *,
    delta: Number,
    limits: tuple[Number, Number] | None = None,
    factor: Number = 1,
) -> None:
    """Draw a difference and its interval in a row for each arm, marked by its verdict, over the band ±δ.

    Args:
        axes: where to draw; its rows are named by their arms.
        found: what became of each arm.
        delta: δ, in the unit of the differences.
        limits: of the axis, times ``factor``; a difference outside is an arrow at the edge beside its value,
            and the part of its interval inside is drawn.
        factor: of everything that is drawn, 100 where shares are shown in points.
    """
    rows = sorted(found, key=lambda arm: -found[arm].estimate.value)
    axes.axvspan(-delta * factor, delta * factor, color="gray", alpha=0.15, linewidth=0)
    axes.axvline(0, color="gray", linewidth=0.8)
    for place, arm in enumerate(rows):
        one = found[arm]
        marker, color, filled = VERDICTS[one.verdict]
        low, value, high = (factor * x for x in (one.low, one.estimate.value, one.high))
        shade, fill = style.PALETTE[color], "full" if filled else "none"
        if limits and not limits[0] <= value <= limits[1]:
            right = value > limits[1]
            reaches = low < limits[1] and high > limits[0]
            if reaches:
                axes.plot(np.clip([low, high], *limits), [place] * 2, color=shade, linewidth=1.2)
            axes.plot(limits[right], place, "<>"[right], color=shade, fillstyle=fill, clip_on=False)
            text = f"{value:+.2g}".replace("-", "−")
            axes.annotate(
                text,
                (limits[right], place),
                xytext=(-7 if right else 7, reaches),
                textcoords="offset points",
                ha="right" if right else "left",
                va="bottom" if reaches else "center",
                fontsize=style.TYPE,
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
    axes: Axes,
    cost: Mapping[str, Number],
    outcome: Mapping[str, Number],
    *,
    larger: bool,
    beside: Sequence[np.ndarray] = (),
    reference: str = "",
) -> list[str]:
    """Draw outcome against cost, a named dot for each arm, those of ``front`` filled and joined by steps.

    Args:
        axes: where to draw; limits and scales have to be set before, since names keep clear of one another
            on them.
        cost, outcome, larger: as for ``front``.
        beside: curves [points, 2] that are drawn already, which names keep clear of too.
        reference: the arm that the others are compared with, drawn as a diamond.

    Returns:
        The arms of the front.
    """
    kept = front(cost, outcome, larger=larger)
    ends = [(cost[arm], outcome[arm]) for arm in kept]
    corners = [(after[0], before[1]) for before, after in pairwise(ends)]
    steps = np.array([*(point for pair in zip(ends, corners, strict=False) for point in pair), ends[-1]])
    axes.plot(*steps.T, color=style.PALETTE["sky"], linewidth=1.2)
    colors = {arm: style.PALETTE["blue" if arm in kept else "black"] for arm in outcome}
    if reference:
        colors[reference] = style.PALETTE["vermilion"]
    for arm, value in outcome.items():
        marker, fill = "D" if arm == reference else "o", "full" if arm in kept else "none"
        above = 3 if arm == reference else 2
        axes.plot(cost[arm], value, marker, color=colors[arm], fillstyle=fill, zorder=above)
    points = {arm: (cost[arm], value) for arm, value in outcome.items()}
    write(axes, points, colors=colors, lines=[steps, *beside])
    return kept


def rates(
    axes: Axes, tried: Mapping[str, Mapping[float, float]], chosen: Mapping[str, float], *, worst: Number
) -> AxesImage:
    """Draw how much each learning rate costs each arm, as a map: its loss above the arm's lowest one.

    Args:
        axes: where to draw; a row is an arm and a column a rate. A rate that was not tried is blank, one at
            which the loss became infinite is a gray cell with a cross.
        tried: the loss at each rate, of each arm; the row of an arm without rates is blank.
        chosen: the rate of each arm that a dot marks.
        worst: what the darkest color stands for; a larger finite loss has this color too.
    """
    known = sorted({rate for losses in tried.values() for rate in losses})
    above = np.full((len(tried), len(known)), np.nan)
    for row, (arm, losses) in enumerate(tried.items()):
        if not losses:
            continue
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


def write(
    axes: Axes,
    points: Mapping[str, tuple[float, float]],
    *,
    colors: Mapping[str, str],
    lines: Sequence[np.ndarray] = (),
) -> None:
    """Write the name of each point near it.

    Names move one after the other to the place where they cover least and are nearest to their dots, until
    none finds a better one. A thin line joins a name to a dot that is farther away.

    Args:
        axes: limits and scales have to be set before, since names keep clear on these.
        points: by name, in the units of the axes.
        colors: of names.
        lines: further curves [points, 2] to keep clear of, in the units of the axes.
    """
    axes.figure.canvas.draw()
    unit = axes.figure.dpi / 72
    dots = {name: axes.transData.transform(point) for name, point in points.items()}
    free = [(x - ROOM * unit, y - ROOM * unit, x + ROOM * unit, y + ROOM * unit) for x, y in dots.values()]
    drawn = np.concatenate([np.empty((0, 2)), *(_dense(axes.transData.transform(line)) for line in lines)])
    inside = axes.get_window_extent().extents
    texts = {
        name: axes.annotate(name, point, fontsize=style.TYPE, color=colors[name], ha="center", va="center")
        for name, point in points.items()
    }
    places = {name: _places(dots[name], text.get_window_extent(), unit) for name, text in texts.items()}
    fixed = {
        name: np.array([_cost(box, gap, dots[name], free, drawn, inside, unit) for box, gap in of])
        for name, of in places.items()
    }
    chosen = {name: int(np.argmin(costs)) for name, costs in fixed.items()}
    for _ in range(ROUNDS):
        before = dict(chosen)
        for name, of in places.items():
            others = [places[other][at][0] for other, at in chosen.items() if other != name]
            covered = [sum(_common(box, other) for other in others) / unit**2 for box, _ in of]
            chosen[name] = int(np.argmin(fixed[name] + 10 * np.array(covered)))
        if chosen == before:
            break
    for name, text in texts.items():
        box, gap = places[name][chosen[name]]
        center = np.array([box[0] + box[2], box[1] + box[3]]) / 2
        x, y = axes.transData.inverted().transform(center)
        text.set_position((x, y))
        if gap >= LEADER:
            ends = np.array([dots[name], _nearest(box, dots[name])])
            axes.plot(
                *axes.transData.inverted().transform(ends).T,
                color=style.PALETTE["black"],
                linewidth=0.5,
                alpha=0.5,
                zorder=1,
            )


def _places(dot: np.ndarray, extent, unit: float) -> list[tuple[Box, float]]:
    """Boxes of a name around its dot, with their distances in points."""
    half = np.array([extent.width, extent.height]) / 2
    places = []
    for distance in DISTANCES:
        for way in np.stack([np.cos(DIRECTIONS), np.sin(DIRECTIONS)], 1):
            x, y = dot + way * (half + distance * unit)
            box = (x - half[0], y - half[1], x + half[0], y + half[1])
            places.append((box, float(np.hypot(*(_nearest(box, dot) - dot))) / unit))
    return places


def _cost(
    box: Box, gap: float, dot: np.ndarray, free: Sequence[Box], drawn: np.ndarray, inside, unit: float
) -> float:
    """What a place costs without the other names: what it covers, in square points, and its distance."""
    area = (box[2] - box[0]) * (box[3] - box[1])
    covered = sum(_common(box, other) for other in free) + area - _common(box, tuple(inside))
    touched = _within(drawn, box, unit)
    leader = _dense(np.array([dot, _nearest(box, dot)])) if gap >= LEADER else np.empty((0, 2))
    crossed = sum(_within(leader, other, 0.0) for other in free if not _has(other, dot))
    return 10 * covered / unit**2 + 4 * (touched + crossed) / unit + gap


def _dense(line: np.ndarray) -> np.ndarray:
    """A curve as points a pixel apart, as far as its ends are."""
    pieces = [
        first + np.linspace(0, 1, 2 + int(np.hypot(*(last - first))))[:, None] * (last - first)
        for first, last in pairwise(line)
    ]
    return np.concatenate(pieces) if pieces else np.empty((0, 2))


def _within(points: np.ndarray, box: Box, room: float) -> int:
    """How many points lie in a box, or near it."""
    low, high = np.array(box[:2]) - room, np.array(box[2:]) + room
    return int(((points >= low) & (points <= high)).all(1).sum())


def _has(box: Box, point: np.ndarray) -> bool:
    """Whether a point lies in a box."""
    return _within(point[None], box, 0.0) > 0


def _nearest(box: Box, point: np.ndarray) -> np.ndarray:
    """The point of a box that is nearest to another."""
    return np.clip(point, box[:2], box[2:])


def _common(one: Box, other: Box) -> float:
    """The area that two boxes share."""
    wide = min(one[2], other[2]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[1], other[1])
    return max(wide, 0.0) * max(high, 0.0)
