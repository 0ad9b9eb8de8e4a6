"""Terms of a score against the lag, and what positions add to scores."""

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from gkalib.viz.digest import array
from gkalib.viz.style import COLUMN, PALETTE

PAIRS = ("blue", "vermilion", "green")


def position_terms(by_lag: Mapping[str, Any], added: Mapping[str, Any], *, bound: int | float) -> Figure:
    """Terms of a score against the lag, and what positions add to some scores along the text.

    Args:
        by_lag: ``[lags]`` by name, tensors or arrays; solid and dashed in turn.
        added: ``[pairs places]`` by kind of position; solid and dotted in turn, three colors for the pairs.
        bound: of the terms, a gray line.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(COLUMN, 3.0))
    for (name, term), line in zip(by_lag.items(), cycle(("-", "--")), strict=False):
        left.plot(array(term), line, color=PALETTE["blue"], label=name)
    left.axhline(bound, color="gray", linewidth=1, label="bound")
    left.set(xlabel="lag", ylabel="nats", ylim=(0, 1.05 * bound))
    left.legend(loc="center right")
    for (name, pairs), line in zip(added.items(), cycle(("-", ":")), strict=False):
        for pair, shade in zip(array(pairs), cycle(PAIRS), strict=False):
            right.plot(pair, line, color=PALETTE[shade])
        right.plot([], [], line, color="gray", label=name)
    right.set(xlabel="position of the key", ylabel="added to the score (nats)")
    right.legend(loc="upper right", ncols=2, bbox_to_anchor=(1, 1.12))
    return figure
