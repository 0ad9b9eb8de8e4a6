"""Costs as bars, and outcomes of runs against measures of theirs."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from gkalib.viz import style

Number = int | float
Values = Sequence[float] | np.ndarray


def bars(costs: Mapping[str, Mapping[str, Number]], *, limits: tuple[Number, Number]) -> Figure:
    """Draw a panel of bars for each cost on a logarithmic scale, each with its value at its end.

    Args:
        costs: by the label of its axis, the value of each arm, the first on top; all have the same arms.
        limits: of all axes.

    Raises:
        ValueError: if the panels have different arms.
    """
    arms = list(next(iter(costs.values())))
    if any(list(values) != arms for values in costs.values()):
        raise ValueError(f"bars: each cost needs the arms {', '.join(arms)}, in this order")
    figure, (panels,) = plt.subplots(1, len(costs), figsize=(style.COLUMN, 2.3), sharey=True, squeeze=False)
    for axes, (label, values) in zip(panels, costs.items(), strict=True):
        drawn = axes.barh(arms, list(values.values()), color=style.PALETTE["blue"])
        axes.bar_label(drawn, [f"{value:.2g}" for value in values.values()], padding=3)
        axes.set(xscale="log", xlabel=label, xlim=limits)
    panels[0].invert_yaxis()
    return figure


def outcomes(
    measures: Mapping[str, Mapping[str, Values]],
    outcome: Mapping[str, Values],
    marks: Mapping[str, tuple[str, str, str]],
) -> Figure:
    """Draw an outcome of runs against measures of theirs on logarithmic axes, side by side over one legend.

    Args:
        measures: by the label of its axis, the values of each arm, one for each run.
        outcome: of each arm, one value for each run; all panels share its axis.
        marks: of the arms to draw, a name, a marker and a color of the palette.
    """
    figure, (panels,) = plt.subplots(
        1, len(measures), figsize=(style.COLUMN, 3.3), sharey=True, squeeze=False
    )
    for axes, (label, values) in zip(panels, measures.items(), strict=True):
        for arm, (name, mark, shade) in marks.items():
            axes.semilogx(values[arm], outcome[arm], mark, color=style.PALETTE[shade], label=name)
        axes.set(xlabel=label)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure
