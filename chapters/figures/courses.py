"""How a loss goes over the steps of training, beside that of another arm."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from scipy.stats import sem, t

from gkalib import results
from gkalib.viz.style import PALETTE


def course(runs: Sequence[results.Record], arm: str, column: str) -> np.ndarray:
    """A column of an arm's curves, ``[times seeds]``, seeds in order."""
    chosen = sorted((run for run in runs if run.arm == arm), key=lambda run: run.seed)
    return np.array([[float(row[column]) for row in results.rows(run)] for run in chosen]).T


def differences(
    axes: Axes,
    runs: Sequence[results.Record],
    arms: Mapping[str, str],
    *,
    minus: str,
    column: str,
    names: Mapping[str, str] | None = None,
) -> None:
    """Draw the mean of each arm's loss minus another's of the same seed, with its 95 % interval.

    Args:
        axes: where.
        runs: of all arms, with the same seeds.
        arms: the color of each.
        minus: the arm that is subtracted.
        column: of the curve.
        names: of arms in the legend, where they differ.
    """
    chosen = next(run for run in runs if run.arm == minus)
    times, plain = [int(row["step"]) for row in results.rows(chosen)], course(runs, minus, column)
    axes.axhline(0, color="gray", linewidth=0.8)
    for arm, tint in arms.items():
        apart = course(runs, arm, column) - plain
        mean, half = apart.mean(1), t.ppf(0.975, apart.shape[1] - 1) * sem(apart, axis=1)
        axes.plot(times, mean, color=PALETTE[tint], label=(names or {}).get(arm, arm))
        axes.fill_between(times, mean - half, mean + half, color=PALETTE[tint], alpha=0.2, linewidth=0)
