"""Arms in rows: a dot for each seed, marks of several kinds, a difference with its interval."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from gkalib.extras import moved
from gkalib.results.verdicts import Judgment
from gkalib.viz import style

Number = int | float
Values = Sequence[float] | np.ndarray
MARKS = (("|", "black", 11), ("o", "blue", 5), ("D", "orange", 5))  # a tick shows behind a dot
PALE = 0.4
# by verdict: marker, color, whether it is filled; a reader without color sees the marker
VERDICTS = {
    "as good as": ("o", "blue", True),
    "not reproduced": ("s", "vermilion", True),
    "undecided": ("o", "black", False),
}

__getattr__ = moved(
    __name__,
    {
        "grouped": "chapters.figures.looking_inside.grouped",
        "outcomes": "chapters.figures.karat_cifar.outcomes",
    },
)


def seeds(
    axes: Axes,
    values: Mapping[str, Values],
    shades: Mapping[str, str],
    *,
    hollow: Collection[str] = (),
    spans: Mapping[str, tuple[float, float]] | None = None,
) -> None:
    """Draw a row for each arm, the first on top: a dot for each of its seeds, and their mean or an interval.

    Args:
        axes: where to draw; its rows are named by their arms.
        values: of each arm, one for each seed.
        shades: a color of the palette for each arm.
        hollow: the arms whose dots are open.
        spans: the ends of each arm's interval, a thick line under smaller dots; without them a gray tick
            marks the mean.

    Taught in: chapter 26.
    """
    for place, (arm, row) in enumerate(values.items()):
        if spans is None:
            axes.plot([np.mean(row)], [place], "|", color="gray", markersize=14)
        else:
            axes.plot(spans[arm], [place] * 2, color="black", linewidth=2.5)
        (dots,) = axes.plot(row, [place] * len(row), "o", color=style.PALETTE[shades[arm]])
        dots.set(fillstyle="none" if arm in hollow else "full", markersize=5 if spans is None else 3.5)
    axes.set_yticks(range(len(values)), list(values))
    axes.invert_yaxis()


def kinds(axes: Axes, values: Mapping[str, Mapping[str, Values]]) -> None:
    """Draw a row for each arm, the first on top, with a mark for the mean of each of up to three kinds.

    Small pale marks are the runs. A line joins the means of the first two kinds.

    Args:
        axes: where to draw; its rows are named by their arms, and each kind has a label for a legend.
        values: of each arm, by kind, one for each run; all arms have the same kinds.

    Raises:
        ValueError: if there are more kinds than marks, or an arm has other kinds than the first.

    Taught in: chapter 23.
    """
    names = list(next(iter(values.values())))
    if len(names) > len(MARKS) or any(list(row) != names for row in values.values()):
        raise ValueError(f"kinds: each arm needs the same kinds, at most {len(MARKS)}, the first has {names}")
    for place, row in enumerate(values.values()):
        ends = [np.mean(row[name]) for name in names[:2]]
        axes.plot(ends, [place] * len(ends), color=style.PALETTE["blue"], linewidth=1)
        for (name, runs), (mark, shade, size) in zip(row.items(), MARKS, strict=False):
            color, label = style.PALETTE[shade], None if place else name
            axes.plot(runs, [place] * len(runs), mark, color=color, markersize=0.7 * size, alpha=PALE)
            axes.plot([np.mean(runs)], [place], mark, color=color, markersize=size, label=label)
    axes.set_yticks(range(len(values)), list(values))
    axes.invert_yaxis()


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
        limits: of the axis, times ``factor``; a difference outside is an arrow at the edge beside its value,
            and the part of its interval inside is drawn.
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
