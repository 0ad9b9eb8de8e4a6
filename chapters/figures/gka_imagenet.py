"""Which matrices of an attention layer are left, model by model."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gkalib.viz.style import PALETTE

Place = int | float
LANES = {"$W_Q$": 19, "$W_K$": 11, "$W_V$": 3}


def removals(models: Mapping[str, tuple[str, str]]) -> Figure:
    """The way of a token through the attention layer of each model; matrices that it lacks are left empty.

    Args:
        models: by title, the letters of the matrices that are left among Q, K and V, and the kernel.
    """
    figure, panels = plt.subplots(len(models), 1, figsize=(5.2, 1.75 * len(models)), squeeze=False)
    for axes, (title, (left, kernel)) in zip(panels[:, 0], models.items(), strict=True):
        axes.set(xlim=(0, 104), ylim=(-1, 25), title=title)
        axes.axis("off")
        _box(axes, 0, 0, 10, 24, "token\n$x$", "black", 0.12)
        for name, y in LANES.items():
            end = 73 if name == "$W_V$" else 47
            if name[3] in left:
                _box(axes, 20, y - 3, 15, 6, name, PALETTE["blue"], 0.35)
                _arrow(axes, 10, 20, y)
                _arrow(axes, 35, end, y)
            else:
                outline = {"fill": False, "edgecolor": "gray", "linestyle": ":"}
                axes.add_patch(Rectangle((20, y - 3), 15, 6, **outline))
                _arrow(axes, 10, end, y)
        _box(axes, 47, 7, 21, 17, f"compare\n{kernel}", PALETTE["orange"], 0.3)
        axes.annotate("", (79, 11), (68, 15), arrowprops={"arrowstyle": "-|>", "color": "black"})
        _box(axes, 73, -1, 14, 12, "average", PALETTE["green"], 0.3)
        _box(axes, 92, 2, 12, 6, "$W_O$", PALETTE["blue"], 0.35)
        _arrow(axes, 87, 92, 5)
    return figure


def _box(
    axes: Axes, x: Place, y: Place, width: Place, height: Place, words: str, color: str, alpha: float
) -> None:
    axes.add_patch(Rectangle((x, y), width, height, facecolor=color, alpha=alpha, linewidth=0))
    axes.text(x + width / 2, y + height / 2, words, ha="center", va="center")


def _arrow(axes: Axes, start: Place, end: Place, y: Place) -> None:
    axes.annotate("", (end, y), (start, y), arrowprops={"arrowstyle": "-|>", "color": "black"})
