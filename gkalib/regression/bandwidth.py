"""How far to look: rules for the bandwidth, and the search for the one with the lowest error."""

import math
from collections.abc import Callable

import numpy as np

RULES = ("scott", "silverman", "loo", "kfold")


def scott(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    r"""Scott's rule, one bandwidth per feature: $h_k = s_k\, n^{-1/(d+4)}$, s the standard deviation."""
    return spread(x, weight) * weight.sum() ** (-1 / (x.shape[1] + 4))


def silverman(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    r"""Silverman's rule, one bandwidth per feature: $h_k = s_k\, (n (d+2)/4)^{-1/(d+4)}$."""
    d = x.shape[1]
    return spread(x, weight) * (weight.sum() * (d + 2) / 4) ** (-1 / (d + 4))


def spread(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The standard deviation of each feature; 1 for a feature that does not vary."""
    deviation = x - np.average(x, axis=0, weights=weight)
    spread = np.sqrt(np.average(deviation**2, axis=0, weights=weight))
    return np.where(np.ptp(x, axis=0) > 0, spread, 1.0)


def lowest(score: Callable[[float], float], low: float, high: float) -> float:
    """Where between two positive numbers ``score`` is lowest: a geometric grid, then a golden section.

    Raises:
        ValueError: if the score is finite nowhere on the grid.
    """
    grid = np.geomspace(low, high, 25)
    scores = [score(float(point)) for point in grid]
    if not np.isfinite(scores).any():
        raise ValueError("the error on samples left out is infinite for every bandwidth")
    best = int(np.argmin(scores))
    left, right = math.log(grid[max(best - 1, 0)]), math.log(grid[min(best + 1, len(grid) - 1)])
    golden = (math.sqrt(5) - 1) / 2
    inner = [right - golden * (right - left), left + golden * (right - left)]
    values = [score(math.exp(point)) for point in inner]
    while right - left > 1e-3:
        if values[0] <= values[1]:
            right, inner = inner[1], [inner[1] - golden * (inner[1] - left), inner[0]]
            values = [score(math.exp(inner[0])), values[0]]
        else:
            left, inner = inner[0], [inner[1], inner[0] + golden * (right - inner[0])]
            values = [values[1], score(math.exp(inner[1]))]
    return math.exp((left + right) / 2)
