"""Pictures of the machine and of who does what on it.

One streaming multiprocessor of an H100 with the memories around it, and the tiles of a backward pass.
"""

from collections.abc import Callable

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Polygon, Rectangle

from gkalib.viz.style import COLUMN, PALETTE

Place = int | float
MEMORY, ARITHMETIC, ISSUE = PALETTE["sky"], PALETTE["orange"], PALETTE["green"]
MASKS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "none": lambda lag: lag == lag,
    "causal": lambda lag: lag >= 0,
    "window": lambda lag: (lag >= 0) & (lag < 3),
    "two-sided window": lambda lag: abs(lag) < 2,
}
"""Which lags of blocks, query less key, hold a pair that is seen."""


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


def owners(mask: str, block: int, *, blocks: int = 8) -> Figure:
    """The tiles that one program instance of a backward pass forms, and the matrix products of all instances.

    One tensor is query, key and value. Left, blue tiles are those in which the instance's tokens are queries,
    orange those in which they are keys and values. Under a symmetric mask one tile serves both and is purple,
    its transpose is pale; else the tile on the diagonal has both colors. Right, products of every instance;
    dashed, those of the forward pass.

    Args:
        mask: one of ``MASKS``.
        block: the one that the instance owns.
        blocks: of tokens.

    Raises:
        ValueError: if there is no such mask or block.

    Taught in: chapter 16.
    """
    if mask not in MASKS or not 0 <= block < blocks:
        raise ValueError(
            f"owners: masks are {', '.join(MASKS)}, blocks 0 to {blocks - 1}; not {mask}, {block}"
        )
    seen = MASKS[mask](np.arange(blocks)[:, None] - np.arange(blocks))
    figure, (left, right) = plt.subplots(1, 2, figsize=(COLUMN, 2.9), width_ratios=[1, 1.15])
    shade = np.where(seen[..., None], [0.87] * 3, [1.0] * 3)
    by_row, by_column = seen.sum(1), seen.sum(0)
    if (seen == seen.T).all():
        purple = np.array(to_rgb(PALETTE["purple"]))
        shade[seen[:, block], block], shade[block, seen[block]] = 0.4 * purple + 0.6, purple
        work = 5 * by_row
    else:
        shade[seen[:, block], block] = to_rgb(PALETTE["orange"])
        shade[block, seen[block]] = to_rgb(PALETTE["blue"])
        work = 3 * by_row + 4 * by_column
        low, high = block - 0.5, block + 0.5
        left.add_patch(Polygon([(low, low), (high, low), (high, high)], color=PALETTE["orange"], lw=0))
        names = {"as queries": "blue", "as keys and values": "orange"}
        handles = [Patch(color=PALETTE[shade], label=name) for name, shade in names.items()]
        left.legend(handles=handles, fontsize=8, loc="upper right")
    place = np.arange(len(seen))
    left.imshow(shade)
    left.set(xticks=place, yticks=place, xlabel="block of keys and values", ylabel="block of queries")
    left.set_xticks(place[1:] - 0.5, minor=True)
    left.set_yticks(place[1:] - 0.5, minor=True)
    left.grid(which="minor", color="white", linewidth=1.5)
    bars = right.bar(place, work, color="lightgray")
    bars[block].set_color("gray")
    right.step(place, 2 * by_row, "--", where="mid", color="black", label="forward")
    right.set(xlabel="program instance", ylabel="products", xticks=place, ylim=(0, 6 * len(seen)))
    right.legend(fontsize=8, loc="upper right")
    return figure


def _box(axes: Axes, x: Place, y: Place, width: Place, height: Place, words: str, color: str) -> None:
    """A named part of the machine."""
    axes.add_patch(Rectangle((x, y), width, height, facecolor=color, alpha=0.3, lw=0))
    axes.text(x + width / 2, y + height / 2, words, fontsize=7, ha="center", va="center")


def _arrow(axes: Axes, start: tuple[Place, Place], end: tuple[Place, Place]) -> None:
    """The way that data take."""
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "lw": 1.2, "color": "black"})
