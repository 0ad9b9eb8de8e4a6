"""What limits each shape, and how near published programs come to that."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from gkalib.bench.roofline import Floor, Rates
from gkalib.viz.style import COLUMN, PALETTE

PARTS = {"products": "blue", "exponentials": "orange", "memory": "black"}
PROGRAMS = {"FlashAttention-3": "blue", "cuDNN": "green", "FlashAttention-2": "orange"}


def floors(shapes: Mapping[str, Floor]) -> Figure:
    """The microseconds that each resource needs, three dots for each shape; the largest is filled.

    Args:
        shapes: by name.
    """
    figure, axes = plt.subplots(figsize=(COLUMN, 4.6))
    for row, floor in enumerate(shapes.values()):
        axes.axhline(row, color="#DDDDDD", lw=0.8)
        for shift, (part, shade) in enumerate(PARTS.items()):
            (dot,) = axes.plot(1e6 * getattr(floor, part), row + 0.22 * (shift - 1), "o", ms=6)
            dot.set(color=PALETTE[shade], label=f"_{part}" if row else part)
            dot.set_fillstyle("full" if part == floor.bound else "none")
    axes.set_yticks(range(len(shapes)), list(shapes), fontsize=8)
    axes.set(xscale="log", xlabel="µs at least", xlim=(0.03, 400))
    axes.invert_yaxis()
    axes.legend(fontsize=8, loc="upper left")
    return figure


def shares(
    published: Mapping[tuple[str, int], Sequence[int]], lengths: Sequence[int], rates: Rates
) -> Figure:
    r"""Floor over time of softmax attention without a mask in two bytes, from published rates.

    $$\frac{t_0}{t} = \max\Big(\frac{4dn}{R_F}, \frac{n}{R_E}, \frac{8d}{R_M}\Big) \cdot \frac{R}{4dn}$$

    Args:
        published: R in TFLOP/s at each length, by program and width d of a head. Widths of 128 are drawn as
            circles, others as squares.
        lengths: n, numbers of tokens.
        rates: of the device.

    Raises:
        ValueError: if a program has not one rate for each length.
    """
    figure, axes = plt.subplots(figsize=(COLUMN, 2.9))
    for (name, d), found in published.items():
        if len(found) != len(lengths):
            raise ValueError(f"shares: {name} has {len(found)} rates for {len(lengths)} lengths")
        line = []
        for n, rate in zip(lengths, found, strict=True):
            operations, moved = 4 * d * n, 8 * d  # of one query and its n pairs
            times = operations / rates.products, n / rates.exponentials, moved / rates.memory
            line.append(max(times) * rate * 1e12 / operations)
        mark = "o-" if d == 128 else "s-"
        axes.plot(lengths, line, mark, color=PALETTE[PROGRAMS[name]], ms=4, label=f"{name}, d = {d}")
    axes.set(xscale="log", xlabel="tokens", ylabel="floor / time", ylim=(0, 1))
    axes.set_xticks(lengths, [str(n) for n in lengths])
    axes.minorticks_off()
    axes.legend(fontsize=8, ncols=2)
    return figure
