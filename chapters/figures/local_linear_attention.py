"""A line at one query with its signed weights, and the errors of estimators by the number of pairs."""

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from torch import Tensor

from gkalib.kernels import Kernel
from gkalib.results import load
from gkalib.smoothing import attention_weights, smooth
from gkalib.viz import style

REACH = 0.35  # of the line to both sides of its query
ARMS = {  # of the experiment `estimators`: a label, a color of the palette and a mark
    "constant": ("constant", "vermilion", "o-"),
    "line": ("line", "blue", "o-"),
    "ridge": ("ridge", "green", "o-"),
    "linear": ("linear attention", "black", "s--"),
    "retention": ("retention", "orange", "s--"),
    "delta": ("delta", "purple", "^--"),
    "gated-delta": ("delta with decay", "sky", "^--"),
}


def dial(query: float, ridge: str, places: Tensor, key: Tensor, truth: Tensor, kernel: Kernel) -> Figure:
    """One query with its line over the answers to all places, and the weights that it gives to the keys.

    Args:
        query: a number.
        ridge: λ, as a slider shows it; ``"∞"`` is a constant at every query.
        places: ``[n]``.
        key: ``[m]``, some of the places.
        truth: ``[n]``, at the places.
        kernel: of the weights.
    """
    line = {} if ridge == "∞" else {"degree": 1, "ridge": float(ridge)}
    ends = query + torch.tensor([-REACH, 0.0, REACH], dtype=torch.float64)
    value = truth[torch.cdist(key[:, None], places[:, None]).argmin(1)]
    weights = attention_weights(ends[1:2], key, kernel, **line)[0]
    slope = torch.zeros((), dtype=torch.float64)
    if line:  # λ acts on all coordinates alike: a key's own coordinate and its value share the weights
        plain = attention_weights(ends[1:2], key, kernel)[0]
        far = key - plain @ key
        slope = (plain * far) @ value / ((plain * far) @ far + float(ridge))
    figure, (above, below) = plt.subplots(
        2, 1, figsize=(style.COLUMN, 4.2), sharex=True, height_ratios=(3, 2)
    )
    above.plot(places, truth, color="gray", linewidth=4, alpha=0.35)
    above.plot(places, smooth(places, key, value, kernel, **line), color=style.PALETTE["blue"])
    above.plot(key, value, "o", color="black", markersize=3)
    above.plot(ends, weights @ value + slope * (ends - query), color=style.PALETTE["orange"], linewidth=3)
    above.set(ylim=(-1.8, 1.8), ylabel="answer")
    shades = [style.PALETTE["blue" if one >= 0 else "vermilion"] for one in weights]
    below.vlines(key, 0, weights, color=shades, linewidth=3)
    below.axhline(0, color="gray", linewidth=0.8)
    below.set(ylim=(-0.4, 1.45), xlabel="key, query", ylabel="weight")
    for axes in (above, below):
        axes.axvline(query, color=style.PALETTE["orange"], linestyle="--", linewidth=1)
    return figure


def by_count(axes: Axes, target: str, dim: int) -> None:
    """The recorded errors of all estimators with their intervals, against the number of pairs.

    Args:
        axes: where to draw; each estimator has a label for a legend.
        target: ``"linear"``, ``"smooth"``, ``"edge"`` or ``"switch"``.
        dim: of a key.
    """
    metrics = {run.arm: run.metrics for run in load("estimators")}
    counts = load("estimators")[0].recipe["lengths"]
    for arm, (label, shade, line) in ARMS.items():
        error, half = (
            [metrics[arm][f"{kind}_{target}_{dim}_{n}"] for n in counts] for kind in ("error", "half")
        )
        marks = {"color": style.PALETTE[shade], "markersize": 3, "linewidth": 1.2}
        axes.errorbar(counts, error, half, fmt=line, label=label, **marks)
    axes.set_xscale("log")
    axes.set_xticks(counts, [f"{count:,}" for count in counts])
    axes.set_yscale("log")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.minorticks_off()
