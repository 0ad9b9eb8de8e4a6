"""One streaming multiprocessor of an H100, with the memories around it, and its clocks for a tile."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gkalib.viz.style import COLUMN, PALETTE

Place = int | float
MEMORY, ARITHMETIC, ISSUE = PALETTE["sky"], PALETTE["orange"], PALETTE["green"]


def multiprocessor() -> Figure:
    """One multiprocessor: four quarters that share a memory, beside the L2 cache and the GPU's memory.

    Numbers of instructions and operations are per clock. Sizes and rates are those that NVIDIA states for an
    H100 in its SXM form.
    """
    figure, axes = plt.subplots(figsize=(COLUMN, 3.9))
    axes.set(xlim=(0, 100), ylim=(0, 60))
    axes.axis("off")
    _box(axes, 0, 8, 12, 44, "GPU\nmemory\n\n80 GB\n\n3.35 TB/s", MEMORY)
    _box(axes, 18, 8, 12, 44, "L2\ncache\n\n50 MB\n\nshared\nby all\n132 SMs", MEMORY)
    axes.add_patch(Rectangle((37, 0), 63, 60, fill=False, lw=1.2))
    axes.text(38.5, 57, "one streaming multiprocessor (SM)", fontsize=9, va="center")
    _box(axes, 39, 42, 59, 11, "shared memory, 227 KiB for one thread block", MEMORY)
    for left in (39, 54, 69, 84):
        _box(axes, left, 28, 14, 8, "tensor core\n512 mult.-adds", ARITHMETIC)
        _box(axes, left, 19, 14, 8, "registers\n16,384 × 32 bit", MEMORY)
        _box(axes, left, 10, 14, 8, "32 lanes\n4 exponentials", ARITHMETIC)
        _box(axes, left, 1, 14, 8, "scheduler\n1 instruction", ISSUE)
        _arrow(axes, (left + 7, 42), (left + 7, 36))
    axes.text(68.5, 39, "wgmma", fontsize=7, ha="center", va="center")
    _arrow(axes, (12, 30), (18, 30))
    _arrow(axes, (30, 47), (39, 47))
    return figure


def tile(clocks: Mapping[str, float]) -> Figure:
    """A bar for the clocks that each resource needs; what computes is orange, what delivers blue.

    Args:
        clocks: by name; the last is of the memory.
    """
    figure, axes = plt.subplots(figsize=(COLUMN, 1.9))
    colors = [ARITHMETIC] * (len(clocks) - 1) + [MEMORY]
    bars = axes.barh(list(clocks), list(clocks.values()), color=colors, height=0.6)
    axes.bar_label(bars, fmt="%.0f", padding=3, fontsize=8)
    axes.invert_yaxis()
    axes.set(xlabel="clocks of an SM", xlim=(0, 1.12 * max(clocks.values())))
    return figure


def _box(axes: Axes, x: Place, y: Place, width: Place, height: Place, words: str, color: str) -> None:
    """A named part of the machine."""
    axes.add_patch(Rectangle((x, y), width, height, facecolor=color, alpha=0.3, lw=0))
    axes.text(x + width / 2, y + height / 2, words, fontsize=7, ha="center", va="center")


def _arrow(axes: Axes, start: tuple[Place, Place], end: tuple[Place, Place]) -> None:
    """The way that data take."""
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "lw": 1.2, "color": "black"})
