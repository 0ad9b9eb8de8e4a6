"""What a sequence keeps and what a step of decoding takes at least, against the tokens read."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from gkalib.bench.roofline import Number, Rates
from gkalib.viz.style import COLUMN, PALETTE


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
