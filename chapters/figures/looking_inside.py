"""Maps of patches beside their pictures, and measures of variants in groups."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gkalib.analysis import patch_grid
from gkalib.viz import style
from gkalib.viz.digest import array

Values = Sequence[float] | np.ndarray
SPREAD = 0.3  # of a row's height, to either side, so that dots do not cover each other
GAP = 0.6  # between groups, in rows


def beside(pictures, maps: Mapping[str, Any], *, names: Sequence[str] = ()) -> Figure:
    """Pictures in a column, and beside each its maps, a block a patch, each relative to its largest value.

    Laid over the picture, a map would take on its grays, and what is drawn between the centers of patches
    would be interpolation.

    Args:
        pictures: `[rows, height, width]` gray, tensor or array.
        maps: by title, `[rows, P²]` weights of the patches, zero or more; a map of zeros is dark.
        names: of the rows.

    Raises:
        ValueError: when there are not as many maps of a title as pictures, or the patches are no square.
    """
    rows, columns = len(pictures), 1 + len(maps)
    size = style.COLUMN, 0.85 * style.COLUMN / columns * rows + 0.3
    figure, panels = plt.subplots(rows, columns, figsize=size, squeeze=False)
    for axes, picture in zip(panels[:, 0], array(pictures), strict=True):
        axes.imshow(picture, cmap="gray")
        axes.set(xticks=[], yticks=[])
    for axes, name in zip(panels[:, 0], names, strict=False):
        axes.set_ylabel(name)
    blocks = []
    for column, (title, drawn) in zip(panels[:, 1:].T, maps.items(), strict=True):
        for axes, row in zip(column, array(drawn), strict=True):
            shares = patch_grid(row / (row.max() or 1))
            drawn_as = {"cmap": style.SEQUENTIAL, "vmin": 0.0, "vmax": 1, "interpolation": "nearest"}
            blocks.append(axes.imshow(shares, **drawn_as))
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
        column[0].set_title(title)
    figure.colorbar(blocks[0], ax=panels, label="relative to the map's largest", shrink=0.8)
    return figure


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
