"""Loss surfaces as contours with their losses written on them, the same colors in every panel."""

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.contour import QuadContourSet

from gkalib.analysis.landscape import Surface
from gkalib.viz import style


def surface(
    axes: Axes, drawn: Surface, *, lines: Sequence[float | int], lowest: float | int, highest: float | int
) -> QuadContourSet:
    """Draw the logarithm of a loss in color, and lines at losses that are named.

    Args:
        axes: where to draw; both directions get one scale.
        drawn: the losses on a grid.
        lines: the losses at which lines are drawn, rising.
        lowest, highest: the losses at the two ends of the colors.

    Returns:
        What a color bar needs; it shows log₁₀ of the loss.

    Raises:
        ValueError: unless ``highest`` is above ``lowest`` and both are above zero.

    Taught in: chapter 24.
    """
    if not 0 < lowest < highest:
        raise ValueError(f"surfaces.surface: needs 0 < lowest < highest, not {lowest} and {highest}")
    losses = drawn.losses.clamp(min=torch.finfo(torch.float64).tiny).log10().T.numpy()
    levels = np.linspace(np.log10(lowest), np.log10(highest), 25)
    places = drawn.first.numpy(), drawn.second.numpy()
    filled = axes.contourf(*places, losses, levels=levels, extend="both", cmap=style.SEQUENTIAL)
    heights = np.log10(lines).tolist()
    named = axes.contour(*places, losses, heights, colors="white", linewidths=0.8, linestyles="solid")
    axes.clabel(named, fmt=dict(zip(heights, (f"{line:g}" for line in lines), strict=True)), fontsize=8)
    axes.set(aspect="equal")
    return filled
