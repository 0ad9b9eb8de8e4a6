"""Figures of floors: what limits each shape, how near published programs come, what a decoding step takes."""

from collections.abc import Mapping, Sequence

import numpy as np

from gkalib.bench.roofline import Floor, Number, Rates
from gkalib.extras import needed_by
from gkalib.viz.style import COLUMN, PALETTE

with needed_by("a figure"):
    import matplotlib.pyplot as plt
    from matplotlib.figure import Figure

PARTS = {"products": "blue", "exponentials": "orange", "memory": "black"}
PROGRAMS = {"FlashAttention-3": "blue", "cuDNN": "green", "FlashAttention-2": "orange"}


def floors(shapes: Mapping[str, Floor]) -> Figure:
    """The microseconds that each resource needs, three dots for each shape; the largest is filled.

    Args:
        shapes: by name.

    Taught in: chapter 19.
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

    Taught in: chapter 19.
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


def steps(
    tokens: np.ndarray,
    kept: Mapping[str, tuple[np.ndarray, str, str]],
    decoders: Mapping[str, tuple[Number, Number, str]],
    rates: Rates,
    *,
    room: Number,
) -> Figure:
    r"""The MiB that one sequence keeps, and the milliseconds that a step takes at least, against its tokens.

    $$\frac{U + b\, t\, \beta}{R_M}$$

    for batches of b = 1 and 64 sequences. Lines end where the bytes above exceed the room.

    Args:
        tokens: t, ``[n]``.
        kept: bytes ``[n]`` of one sequence, a color of the palette and a line, by name.
        decoders: the bytes U of weights and β of a token, and a line, by name.
        rates: of the device.
        room: bytes of its memory.

    Taught in: chapter 18.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(COLUMN, 3.0))
    for name, (size, shade, line) in kept.items():
        left.loglog(tokens, size / 2**20, line, color=PALETTE[shade], label=name)
    for batch, shade in ((1, "sky"), (64, "purple")):
        for name, (weights, token, line) in decoders.items():
            moved = weights + batch * tokens * token
            ms = 1e3 * np.where(moved > room, np.nan, moved) / rates.memory
            right.loglog(tokens, ms, line, color=PALETTE[shade], label=f"{name}, batch {batch}")
    left.set(xlabel="tokens", ylabel="MiB of one sequence")
    right.set(xlabel="tokens", ylabel="ms for a step, at least")
    for axes in (left, right):
        axes.legend(fontsize=7)
    return figure
