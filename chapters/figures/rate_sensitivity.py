"""The loss against the learning rate, and what it costs to miss the best one."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from gkalib.results import Record
from gkalib.viz.style import PALETTE


def of_arm(runs: Sequence[Record], arm: str) -> list[Record]:
    """The runs of ``rate-sensitivity`` that train an arm, at whatever rate."""
    return [run for run in runs if run.arm.rpartition("-")[0] == arm]


def by_rate(runs: Sequence[Record], arm: str) -> dict[float, list[float]]:
    """The losses of an arm's seeds by their rate, the lowest rate first."""
    rates = sorted({run.recipe["lr"] for run in of_arm(runs, arm)})
    return {
        rate: [run.metrics["val_loss"] for run in of_arm(runs, arm) if run.recipe["lr"] == rate]
        for rate in rates
    }


def diverged(runs: Sequence[Record], arm: str) -> int:
    """How many runs of an arm end no better than guessing by frequency."""
    return sum(run.metrics["val_loss"] >= run.metrics["baseline_loss"] for run in of_arm(runs, arm))


def sensitivity(losses: Mapping[float, Sequence[float]]) -> float:
    """The mean loss over the rates minus that at the best of them."""
    means = [float(np.mean(each)) for each in losses.values()]
    return float(np.mean(means)) - min(means)


def curves(axes: Axes, runs: Sequence[Record], arms: Mapping[str, str]) -> None:
    """Draw each arm's mean loss against the rate, and its seeds as dots; ``arms`` are their colors."""
    for arm, tint in arms.items():
        losses = by_rate(runs, arm)
        axes.plot([*losses], [np.mean(each) for each in losses.values()], color=PALETTE[tint], label=arm)
        for rate, each in losses.items():
            axes.plot([rate] * len(each), each, "o", color=PALETTE[tint], markersize=3)
    axes.set(xscale="log", xlabel="learning rate", ylabel="held-out loss after 500 steps")
    axes.legend()
