"""Pictures of lags: the table of a tile, tiles turned upright, what positions add, banks of several runs."""

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gkalib.viz.digest import array
from gkalib.viz.explore import Explore, explore
from gkalib.viz.style import COLUMN, PALETTE

Place = int | float
PAIRS = ("blue", "vermilion", "green")


def tile(down: int, across: int, *, tokens: int = 12, block: int = 4) -> Figure:
    """A matrix colored by lag with one tile framed, above the table of lags with what the tile reads framed.

    Args:
        down, across: the tile's place, counted in tiles.
        tokens: queries, and as many keys.
        block: rows and columns of a tile.

    Raises:
        ValueError: if the matrix has no such tile.
    """
    first, second = block * down, block * across
    if not (0 <= first <= tokens - block and 0 <= second <= tokens - block):
        raise ValueError(f"tile: {tokens} tokens have no tile of {block} at {down}, {across}")
    figure, (above, below) = plt.subplots(
        2, 1, figsize=(COLUMN, 4.6), height_ratios=[6, 1], layout="constrained"
    )
    colors = {"cmap": "RdBu_r", "vmin": 1 - tokens, "vmax": tokens - 1}
    lags = np.arange(tokens)[:, None] - np.arange(tokens)
    above.imshow(lags, **colors)
    for i in range(first, first + block):
        for j in range(second, second + block):
            shade = "white" if abs(lags[i, j]) > tokens / 2 else "black"
            above.text(j, i, str(lags[i, j]), ha="center", va="center", fontsize=8, color=shade)
    _frame(above, second - 0.5, first - 0.5, block, block)
    above.set(xlabel="key j", ylabel="query i")
    places = (0.5 - tokens, tokens - 0.5, 0, 1)
    below.imshow(np.arange(1 - tokens, tokens)[None], aspect="auto", extent=places, **colors)
    _frame(below, first - second - block + 0.5, 0.02, 2 * block - 1, 0.96)
    below.set(yticks=[], xlabel="lag, place in the table")
    for axes in (above, below):
        axes.grid(False)
    return figure


def tiles() -> Explore:
    """``tile`` at each of nine places, under two controls. Taught in: chapter 17."""
    return explore(
        tile,
        down=[0, 1, 2],
        across=[0, 1, 2],
        labels={"down": "tile, down", "across": "tile, across"},
        start={"down": 1, "across": 0},
        dpi=75,
        alt="A 12 by 12 matrix colored by lag with the tile in block row {down} and block column "
        "{across} framed, and below it a strip of 23 lags of which the tile's seven are framed.",
    )


def turned(rows: np.ndarray) -> np.ndarray:
    """Each row r read backwards from its first entry and turned by r: (r, u) is (r, r − u mod B)."""
    place = np.arange(len(rows))
    return np.take_along_axis(rows, (place[:, None] - place) % len(rows), 1)


def neighbors(block: int = 4) -> Figure:
    """Two neighboring tiles of lags, both turned, and their parts that share the lags 0 … block − 1.

    A staircase divides the two lags of each column of a turned tile.
    """
    place = np.arange(block)
    right = place[:, None] - place
    left = right + block
    joined = np.where(place[:, None] >= place, turned(right), turned(left))
    shown = {"left tile": left, "right tile": right, "left, turned": turned(left)}
    shown |= {"right, turned": turned(right), "joined": joined}
    figure, panels = plt.subplots(1, len(shown), figsize=(COLUMN, 1.9))
    for axes, (name, lags) in zip(panels, shown.items(), strict=True):
        axes.imshow(lags, cmap="RdBu_r", vmin=-2 * block, vmax=2 * block)
        for (i, j), lag in np.ndenumerate(lags):
            axes.text(j, i, str(lag), ha="center", va="center", fontsize=8)
        axes.set_title(name, fontsize=9)
        axes.set(xticks=[], yticks=[])
        axes.grid(False)
        if "turned" in name:
            axes.step(place + 0.5, place - 0.5, where="pre", color="black", linewidth=2)
    return figure


def position_terms(by_lag: Mapping[str, Any], added: Mapping[str, Any], *, bound: Place) -> Figure:
    """Terms of a score against the lag, and what positions add to some scores along the text.

    Args:
        by_lag: ``[lags]`` by name, tensors or arrays; solid and dashed in turn.
        added: ``[pairs places]`` by kind of position; solid and dotted in turn, three colors for the pairs.
        bound: of the terms, a gray line.

    Taught in: chapter 26.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(COLUMN, 3.0))
    for (name, term), line in zip(by_lag.items(), cycle(("-", "--")), strict=False):
        left.plot(array(term), line, color=PALETTE["blue"], label=name)
    left.axhline(bound, color="gray", linewidth=1, label="bound")
    left.set(xlabel="lag", ylabel="nats", ylim=(0, 1.05 * bound))
    left.legend(loc="center right")
    for (name, pairs), line in zip(added.items(), cycle(("-", ":")), strict=False):
        for pair, shade in zip(array(pairs), cycle(PAIRS), strict=False):
            right.plot(pair, line, color=PALETTE[shade])
        right.plot([], [], line, color="gray", label=name)
    right.set(xlabel="position of the key", ylabel="added to the score (nats)")
    right.legend(loc="upper right", ncols=2, bbox_to_anchor=(1, 1.12))
    return figure


def banks(
    panels: Mapping[str, Any],
    *,
    columns: int = 3,
    width: int = 4,
    top: Place | None = None,
    marks: Mapping[str, Place] | None = None,
) -> Figure:
    """Banks over the lag, in panels that share their axes, a curve for each run.

    Args:
        panels: by title, means of G over bins of lags from lag 0 on, ``[bins runs]``, tensors or arrays.
        columns: how many panels stand side by side.
        width: lags in a bin; a mean is drawn at the middle of its bin.
        top: the upper end of the vertical axis, which then begins at zero.
        marks: by title, a lag that a dotted line marks.

    Raises:
        ValueError: if the panels do not fill their rows.

    Taught in: chapter 25.
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
        if top is not None:
            axes.set(ylim=(0, top))
    for axes in grid[-1]:
        axes.set(xlabel="lag Δ (characters)")
    for axes in grid[:, 0]:
        axes.set(ylabel="G(Δ) (nats)")
    return figure


def _frame(axes: Axes, left: Place, low: Place, width: Place, height: Place) -> None:
    axes.add_patch(Rectangle((left, low), width, height, fill=False, linewidth=2.5))
