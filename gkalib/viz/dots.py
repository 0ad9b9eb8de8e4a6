"""Dots of arms: measurements in rows, arm by arm or group by group, and an outcome against measures."""

from collections.abc import Collection, Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gkalib.viz import style

Values = Sequence[float] | np.ndarray
MARKS = (("|", "black", 11), ("o", "blue", 5), ("D", "orange", 5))  # a tick shows behind a dot
PALE = 0.4
SPREAD = 0.3  # of a row's height, to either side, so that dots do not cover each other
GAP = 0.6  # between groups, in rows


def grouped(
    axes: Axes,
    values: Mapping[str, Values],
    groups: Mapping[str, tuple[str, Sequence[str]]],
    *,
    ticks: Mapping[str, float] | None = None,
    hollow: Collection[str] = (),
    name_groups: bool = False,
) -> dict[str, float]:
    """Draw a row of dots for each arm, the arms of a group together and in its color.

    Args:
        axes: where to draw; its rows are named by their arms.
        values: of each arm.
        groups: by name, a color of the palette and the arms, from the top.
        ticks: a value of each arm to mark by a black tick.
        hollow: the arms whose dots are open.
        name_groups: whether the names of groups stand at the right.

    Returns:
        How high each arm's row lies.

    Taught in: chapter 23.
    """
    place, rows = 0.0, {}
    for name, (shade, arms) in groups.items():
        color = style.PALETTE[shade]
        for arm in arms:
            place = rows[arm] = place - 1
            height = place + np.linspace(-SPREAD, SPREAD, len(values[arm]))
            fill = "none" if arm in hollow else "full"
            axes.plot(values[arm], height, "o", markersize=3, color=color, fillstyle=fill)
            if ticks is not None:
                axes.plot([ticks[arm]], [place], "|", color="black", markersize=11)
        if name_groups:
            along = axes.get_yaxis_transform()
            axes.text(0.97, rows[arms[0]], name, color=color, va="center", ha="right", transform=along)
        place -= GAP
    axes.set_yticks(list(rows.values()), list(rows))
    return rows


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


def outcomes(
    measures: Mapping[str, Mapping[str, Values]],
    outcome: Mapping[str, Values],
    marks: Mapping[str, tuple[str, str, str]],
) -> Figure:
    """Draw an outcome of runs against measures of theirs on logarithmic axes, side by side over one legend.

    Args:
        measures: by the label of its axis, the values of each arm, one for each run.
        outcome: of each arm, one value for each run; all panels share its axis.
        marks: of the arms to draw, a name, a marker and a color of the palette.

    Taught in: chapter 27.
    """
    figure, (panels,) = plt.subplots(
        1, len(measures), figsize=(style.COLUMN, 3.3), sharey=True, squeeze=False
    )
    for axes, (label, values) in zip(panels, measures.items(), strict=True):
        for arm, (name, mark, shade) in marks.items():
            axes.semilogx(values[arm], outcome[arm], mark, color=style.PALETTE[shade], label=name)
        axes.set(xlabel=label)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure
