"""One streaming multiprocessor of an H100, with the memories around it, and its clocks for a tile."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gkalib.viz.style import COLUMN, PALETTE, PANEL

Place = int | float
MEMORY, ARITHMETIC, ISSUE = PALETTE["sky"], PALETTE["orange"], PALETTE["green"]


def multiprocessor() -> Figure:
    """One multiprocessor: four quarters that share a memory, beside the L2 cache and the GPU's memory.

    Numbers of instructions and operations are per clock. Sizes and rates are those that NVIDIA states for an
    H100 in its SXM form.
    """
    figure, axes = plt.subplots(figsize=(PANEL, 4.4))
    axes.set(xlim=(0, 100), ylim=(0, 100))
    axes.axis("off")
    _box(axes, 0, 91, 100, 9, "GPU memory, 80 GB, 3.35 TB/s", MEMORY)
    _box(axes, 0, 77, 100, 9, "L2 cache, 50 MB, shared by all 132 SMs", MEMORY)
    axes.add_patch(Rectangle((0, 0), 100, 72, fill=False, lw=1.2))
    axes.text(2, 67, "one streaming multiprocessor (SM)", va="center")
    _box(axes, 2, 54, 96, 9, "shared memory, 227 KiB for one thread block", MEMORY)
    for left in (2, 26.5, 51, 75.5):
        _box(axes, left, 35, 22.5, 10, "tensor core\n512 mult.-adds", ARITHMETIC)
        _box(axes, left, 24, 22.5, 10, "registers\n16,384 × 32 bit", MEMORY)
        _box(axes, left, 13, 22.5, 10, "32 lanes\n4 exponentials", ARITHMETIC)
        _box(axes, left, 2, 22.5, 10, "scheduler\n1 instruction", ISSUE)
        _arrow(axes, (left + 11, 54), (left + 11, 45))
    axes.text(50, 49.5, "wgmma", ha="center", va="center")
    _arrow(axes, (75.5, 91), (75.5, 86))
    _arrow(axes, (75.5, 77), (75.5, 63))
    return figure


def tile(clocks: Mapping[str, float]) -> Figure:
    """A bar for the clocks that each resource needs; what computes is orange, what delivers blue.

    Args:
        clocks: by name; the last is of the memory.
    """
    figure, axes = plt.subplots(figsize=(COLUMN, 1.9))
    colors = [ARITHMETIC] * (len(clocks) - 1) + [MEMORY]
    bars = axes.barh(list(clocks), list(clocks.values()), color=colors, height=0.6)
    axes.bar_label(bars, fmt="%.0f", padding=3)
    axes.invert_yaxis()
    axes.set(xlabel="clocks of an SM", xlim=(0, 1.12 * max(clocks.values())))
    return figure


def _box(axes: Axes, x: Place, y: Place, width: Place, height: Place, words: str, color: str) -> None:
    """A named part of the machine."""
    axes.add_patch(Rectangle((x, y), width, height, facecolor=color, alpha=0.3, lw=0))
    axes.text(x + width / 2, y + height / 2, words, ha="center", va="center")


def _arrow(axes: Axes, start: tuple[Place, Place], end: tuple[Place, Place]) -> None:
    """The way that data take."""
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "lw": 1.2, "color": "black"})
