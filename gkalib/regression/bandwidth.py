"""How far to look: rules for the bandwidth, and the search for the one with the lowest error."""

import math
from collections.abc import Callable

import numpy as np
import torch
from scipy.signal import oaconvolve

from gkalib.kernels import Stationary

STEPS, LEAST, MOST = 16, 2**12, 2**20  # steps that places are rounded to: a bandwidth, and the whole range
RULES = ("scott", "silverman", "loo", "kfold")


def scott(x: np.ndarray, weight: np.ndarray, n: float) -> np.ndarray:
    r"""Scott's rule, one bandwidth per feature: $h_k = s_k\, n^{-1/(d+4)}$, s the standard deviation."""
    return spread(x, weight) * n ** (-1 / (x.shape[1] + 4))


def silverman(x: np.ndarray, weight: np.ndarray, n: float) -> np.ndarray:
    r"""Silverman's rule, one bandwidth per feature: $h_k = s_k\, (n (d+2)/4)^{-1/(d+4)}$."""
    d = x.shape[1]
    return spread(x, weight) * (n * (d + 2) / 4) ** (-1 / (d + 4))


def size(weight: np.ndarray, fold: np.ndarray) -> float:
    r"""How many samples of one weight tell as much, $n = (\sum_i s_i)^2 / \sum_i s_i^2$ (Kish).

    s_i is the weight of all samples in a fold.
    """
    share = np.bincount(fold, weight / weight.max())
    return share.sum() ** 2 / (share**2).sum()


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


def rounded(x: np.ndarray, kernel: Stationary) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places as whole numbers of steps, a 16th of the bandwidth or less, and the kernel on such steps.

    A sample lies ``lag`` from a query and has the weight κ there: both ``[2r+1]``, in the order of a
    convolution, up to where κ vanishes beside one.
    """
    extent = float(np.ptp(x)) or 1.0
    step = np.clip(float(kernel.sigma) / STEPS, extent / MOST, extent / LEAST)
    bins = np.rint((x - x.min()) / step).astype(int)
    lag = step * np.arange(bins.max() + 1)
    points = torch.from_numpy(lag)[None, None, :, None]
    kappa = kernel.log(points[:, :, :1], points).exp()[0, 0, 0].numpy()
    reach = np.flatnonzero(kappa > 1e-20)[-1] + 1
    return (
        bins,
        np.append(lag[reach - 1 : 0 : -1], -lag[:reach]),
        np.append(kappa[reach - 1 : 0 : -1], kappa[:reach]),
    )


def summed(bins: np.ndarray, terms: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """What samples of some counts ``[m]`` send each other through kernels ``[2r+1 e]``, over all terms."""
    each = [oaconvolve(np.bincount(bins, counts)[:, None], kernel, axes=0) for counts, kernel in terms]
    sums = np.sum(each, axis=0)
    reach = len(terms[0][1]) // 2
    return sums[reach : len(sums) - reach][bins]
