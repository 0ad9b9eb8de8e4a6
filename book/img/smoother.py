"""Draws the README's picture: ``python book/img/smoother.py`` writes ``smoother.png`` beside itself.

Left, a Nadaraya-Watson fit of the motorcycle readings; right, the attention weights that made it.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib.figure import Figure

import gkalib
from gkalib import data, kernels
from gkalib.viz import maps, style
from gkalib.viz.digest import save

BANDWIDTH = 1.5  # milliseconds
QUERIES = 60
FRAMED = 20
BRIGHT = 0.12  # half of the rows peak below it; the others are drawn as bright as this


def draw() -> Figure:
    """The figure, from the readings and the library."""
    style.use()
    table = data.mcycle()
    time = torch.from_numpy(table.x)[None, None]
    response = torch.from_numpy(table.y)[None, None, :, None]
    query = torch.linspace(float(time.min()), float(time.max()), QUERIES, dtype=time.dtype)[
        None, None, :, None
    ]
    kernel = kernels.Gaussian(BANDWIDTH)
    fit = gkalib.smooth(query, time, response, kernel)
    weights = gkalib.attention_weights(query, time, kernel)[0, 0]

    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2))
    seen = 16 + 120 * weights[FRAMED] / weights[FRAMED].max()
    left.scatter(
        time.flatten(), response.flatten(), s=seen, color=style.PALETTE["sky"], alpha=0.7, linewidth=0
    )
    left.plot(query.flatten(), fit.flatten(), color=style.PALETTE["blue"])
    left.plot(query[0, 0, FRAMED], fit[0, 0, FRAMED], "o", color=style.PALETTE["vermilion"], markersize=8)
    left.set(
        title="Kernel regression: a query averages its neighbors",
        xlabel="time (ms)",
        ylabel="acceleration (g)",
    )
    maps.weights(right, weights, title="Attention: its weights, a row of the map", largest=BRIGHT)
    frame = {"facecolor": "none", "edgecolor": style.PALETTE["vermilion"], "linewidth": 1.5}
    right.axhspan(FRAMED - 0.5, FRAMED + 0.5, **frame)
    right.set(xlabel="key: a reading", ylabel="query: a time")
    return figure


if __name__ == "__main__":
    save(draw(), Path(__file__).with_suffix(".png"))
