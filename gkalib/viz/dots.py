"""Dots in rows, row by row and group by group: many measurements of many arms on one axis."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from gkalib.viz import style

SPREAD = 0.3  # of a row's height, to either side, so that dots do not cover each other
GAP = 0.6  # between groups, in rows


def grouped(
    axes: Axes,
    values: Mapping[str, Sequence[float]],
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
