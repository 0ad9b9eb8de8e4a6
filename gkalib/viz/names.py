"""Names beside the dots of a figure, placed so that they cover neither one another nor what is drawn."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes

from gkalib.viz import style

SIZE = 8.0  # of the letters, in points
ROOM = 3.0  # points around a dot that stay free
DISTANCES = (5, 9, 14, 20, 27, 35)  # points from a dot to its name
DIRECTIONS = np.pi / 8 * np.arange(16)
LEADER = 8.0  # points between a dot and its name from which on a line joins them
ROUNDS = 8  # in which each name looks for a better place among the others

Box = tuple[float, float, float, float]


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

    Taught in: chapter 30.
    """
    axes.figure.canvas.draw()
    unit = axes.figure.dpi / 72
    dots = {name: axes.transData.transform(point) for name, point in points.items()}
    free = [(x - ROOM * unit, y - ROOM * unit, x + ROOM * unit, y + ROOM * unit) for x, y in dots.values()]
    drawn = np.concatenate([np.empty((0, 2)), *(_dense(axes.transData.transform(line)) for line in lines)])
    inside = axes.get_window_extent().extents
    texts = {
        name: axes.annotate(name, point, fontsize=SIZE, color=colors[name], ha="center", va="center")
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
