"""The table of a tile, tiles turned upright, and the digits that a recurrence of cosines loses."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gkalib.viz.explore import Explore, explore
from gkalib.viz.style import COLUMN, PALETTE, PANEL

Place = int | float
HARMONICS = 8
ROUNDING = 2.0**-9
"""Largest error of rounding a cosine to bfloat16."""


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
        2, 1, figsize=(PANEL, 4.6), height_ratios=[6, 1], layout="constrained"
    )
    colors = {"cmap": "RdBu_r", "vmin": 1 - tokens, "vmax": tokens - 1}
    lags = np.arange(tokens)[:, None] - np.arange(tokens)
    above.imshow(lags, **colors)
    for i in range(first, first + block):
        for j in range(second, second + block):
            shade = "white" if abs(lags[i, j]) > tokens / 2 else "black"
            above.text(j, i, str(lags[i, j]), ha="center", va="center", color=shade)
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
    """``tile`` at each of nine places, under two controls."""
    return explore(
        tile,
        down=[0, 1, 2],
        across=[0, 1, 2],
        labels={"down": "tile, down", "across": "tile, across"},
        start={"down": 1, "across": 0},
        dpi=100,
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


def errors(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r"""Largest errors of $\cos gS$ in float32 for g from 1 to 8, by the recurrence and directly.

    $$\cos (g+1)S = 2 \cos S \cos gS - \cos (g-1)S$$

    Args:
        scores: S, ``[n]`` in float64.

    Returns:
        Two arrays ``[8]``; "directly" is the cosine of the multiple of S, which is rounded before.

    Raises:
        ValueError: if the scores are no vector of float64.
    """
    if scores.dtype != np.float64 or scores.ndim != 1:
        raise ValueError(f"errors: scores are [n] in float64, not {list(scores.shape)} in {scores.dtype}")
    g = np.arange(1, HARMONICS + 1)[:, None]
    direct = np.cos(g.astype(np.float32) * scores.astype(np.float32))
    terms = [np.ones_like(direct[0]), direct[0]]
    while len(terms) <= HARMONICS:
        terms.append(2 * terms[1] * terms[-1] - terms[-2])
    exact = np.cos(g * scores)
    return np.abs(terms[1:] - exact).max(1), np.abs(direct - exact).max(1)


def recurrence(rng: np.random.Generator, *, count: int = 200_000) -> Figure:
    """Errors of both ways against the harmonic, for scores up to π, 30 and 300, beside that of bfloat16.

    Args:
        rng: draws the scores, evenly.
        count: how many of each range.
    """
    figure, axes = plt.subplots(figsize=(PANEL, 3.2))
    g = np.arange(1, HARMONICS + 1)
    for reach, shade in ((np.pi, "blue"), (30.0, "orange"), (300.0, "vermilion")):
        ours, direct = errors(rng.uniform(-reach, reach, count))
        axes.semilogy(g, ours, "o-", color=PALETTE[shade], label=f"|S| up to {reach:.3g}")
        axes.semilogy(g, direct, "--", color=PALETTE[shade])
    axes.axhline(ROUNDING, color="gray", label="bfloat16")
    axes.set(xlabel="harmonic g", ylabel="largest error", ylim=(3e-8, 20))
    axes.legend(ncols=2, loc="upper center")
    return figure


def _frame(axes: Axes, left: Place, low: Place, width: Place, height: Place) -> None:
    axes.add_patch(Rectangle((left, low), width, height, fill=False, linewidth=2.5))
