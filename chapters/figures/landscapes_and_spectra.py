"""Loss surfaces with their losses written on them, and training runs along their principal components."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.contour import QuadContourSet
from matplotlib.figure import Figure
from torch import Tensor

from gkalib.analysis.landscape import Plane, Surface
from gkalib.viz.style import COLUMN, PALETTE, SEQUENTIAL

LINES = (0.1, 0.5, 1, 2, 4)


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
    """
    if not 0 < lowest < highest:
        raise ValueError(f"surface: needs 0 < lowest < highest, not {lowest} and {highest}")
    losses = drawn.losses.clamp(min=torch.finfo(torch.float64).tiny).log10().T.numpy()
    levels = np.linspace(np.log10(lowest), np.log10(highest), 25)
    places = drawn.first.numpy(), drawn.second.numpy()
    filled = axes.contourf(*places, losses, levels=levels, extend="both", cmap=SEQUENTIAL)
    heights = np.log10(lines).tolist()
    named = axes.contour(*places, losses, heights, colors="white", linewidths=0.8, linestyles="solid")
    axes.clabel(named, fmt=dict(zip(heights, (f"{line:g}" for line in lines), strict=True)), fontsize=8)
    axes.set(aspect="equal")
    return filled


def components(planes: Mapping[str, Plane], shades: Mapping[str, str]) -> Figure:
    """The first two coordinates of runs, each scaled to length one: along the run, and in their plane.

    Below the coordinates are the cosines of a random walk, in gray.

    Args:
        planes: by name, of runs with equally many snapshots.
        shades: a color of the palette for each.

    Raises:
        ValueError: if the runs differ in their number of snapshots.
    """
    counts = {len(plane.coordinates) for plane in planes.values()}
    if len(counts) != 1:
        raise ValueError(f"components: the runs have {', '.join(map(str, sorted(counts)))} snapshots")
    (count,) = counts
    time = np.linspace(0, 1, count)
    figure, panels = plt.subplots(1, 3, figsize=(COLUMN, 2.7))
    for axes, k in zip(panels, (1, 2), strict=False):
        cosine = np.cos(np.pi * k * time) * (2 / count) ** 0.5
        axes.plot(time, cosine, color="gray", linewidth=5, alpha=0.4, label="theorem")
        axes.set(title=f"component {k}", xlabel="share of the run")
    for name, plane in planes.items():
        scores = plane.coordinates[:, :2] - plane.coordinates[:, :2].mean(0)
        scores = scores / scores.norm(dim=0) * torch.where(scores[0] < 0, -1, 1)
        for axes, column in zip(panels, scores.T, strict=False):
            axes.plot(time, column, color=PALETTE[shades[name]], linewidth=1.3, label=name)
        panels[2].plot(*scores.T, color=PALETTE[shades[name]], linewidth=1.3)
    panels[2].set(xlabel="component 1", ylabel="component 2", title="plane")
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=len(planes) + 1)
    return figure


def projected(
    planes: Mapping[str, Plane],
    surfaces: Mapping[str, Surface],
    losses: Mapping[str, Sequence[Tensor]],
    shades: Mapping[str, str],
    *,
    every: int,
) -> Figure:
    """The projection of each run over the loss on its plane, and the losses of snapshots and projections.

    Args:
        planes: by name, of the runs.
        surfaces: the loss on each plane.
        losses: ``[T]`` of some snapshots, drawn solid, and ``[T]`` of their projections, dotted.
        shades: a color of the palette for each run.
        every: steps between these snapshots.
    """
    figure, panels = plt.subplots(
        1, len(surfaces) + 1, figsize=(COLUMN, 3), width_ratios=[*[1] * len(surfaces), 1.1]
    )
    for axes, (name, drawn) in zip(panels, surfaces.items(), strict=False):
        path = planes[name].coordinates[:, :2]
        surface(axes, drawn, lines=LINES, lowest=0.01, highest=20)
        axes.plot(*path.T, color="white", linewidth=1.5)
        axes.plot(*path[0], "o", color="white")
        axes.plot(*path[-1], "x", color="white")
        axes.set(title=name, xlabel="component 1")
        for found, line in zip(losses[name], ("-", ":"), strict=True):
            label = name if line == "-" else "… projected"
            steps = every * np.arange(len(found))
            panels[-1].semilogy(steps, found, line, color=PALETTE[shades[name]], label=label)
    panels[0].set(ylabel="component 2")
    panels[-1].set(title="loss", xlabel="step")
    panels[-1].legend(fontsize=7)
    return figure
