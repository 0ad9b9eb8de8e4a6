"""Arms in rows: a dot for each seed, or marks of several kinds."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from gkalib.extras import moved
from gkalib.viz import style

Values = Sequence[float] | np.ndarray
MARKS = (("|", "black", 11), ("o", "blue", 5), ("D", "orange", 5))  # a tick shows behind a dot
PALE = 0.4

__getattr__ = moved(
    __name__,
    {
        "grouped": "chapters.figures.looking_inside.grouped",
        "intervals": "chapters.figures.one_budget.intervals",
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

    Taught in: chapter 28.
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

    Taught in: chapter 25.
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
