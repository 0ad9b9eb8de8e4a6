"""Which tiles an instance of a backward pass forms, and how many products all of them take."""

from collections.abc import Callable

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Polygon

from gkalib.viz.style import COLUMN, PALETTE

MASKS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "none": lambda lag: lag == lag,
    "causal": lambda lag: lag >= 0,
    "window": lambda lag: (lag >= 0) & (lag < 3),
    "two-sided window": lambda lag: abs(lag) < 2,
}
"""Which lags of blocks, query less key, hold a pair that is seen."""


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
