"""Banks of several runs over the lag."""

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from gkalib.viz.digest import array
from gkalib.viz.style import COLUMN

Place = int | float


def banks(
    panels: Mapping[str, Any],
    *,
    columns: int = 3,
    width: int = 4,
    marks: Mapping[str, Place] | None = None,
) -> Figure:
    """Banks over the lag, in panels that share their axes, a curve for each run.

    Args:
        panels: by title, means of G over bins of lags from lag 0 on, ``[bins runs]``, tensors or arrays.
        columns: how many panels stand side by side.
        width: lags in a bin; a mean is drawn at the middle of its bin.
        marks: by title, a lag that a dotted line marks.

    Raises:
        ValueError: if the panels do not fill their rows.
    """
    if not panels or len(panels) % columns:
        raise ValueError(f"banks: {len(panels)} panels do not fill rows of {columns}")
    rows, marked = -(-len(panels) // columns), marks or {}
    size = COLUMN, 1.2 + 1.6 * rows
    figure, grid = plt.subplots(rows, columns, figsize=size, sharex=True, sharey=True, squeeze=False)
    for axes, (name, curves) in zip(grid.flat, panels.items(), strict=True):
        curves = array(curves)
        axes.plot(width * np.arange(len(curves)) + (width - 1) / 2, curves, linewidth=1.2)
        if name in marked:
            axes.axvline(marked[name], color="gray", linestyle=":", linewidth=1)
        axes.set(title=name)
    for axes in grid[-1]:
        axes.set(xlabel="lag Δ (characters)")
    for axes in grid[:, 0]:
        axes.set(ylabel="G(Δ) (nats)")
    return figure
