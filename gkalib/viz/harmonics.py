"""How many digits the recurrence of cosines loses, drawn for the harmonics of Kolmogorov–Arnold attention."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from gkalib.viz.style import COLUMN, PALETTE

HARMONICS = 8
ROUNDING = 2.0**-9
"""Largest error of rounding a cosine to bfloat16."""


def errors(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r"""Largest errors of $\cos gS$ in float32 for g from 1 to 8, by the recurrence and directly.

    $$\cos (g+1)S = 2 \cos S \cos gS - \cos (g-1)S$$

    Args:
        scores: S, ``[n]`` in float64.

    Returns:
        Two arrays ``[8]``; "directly" is the cosine of the multiple of S, which is rounded before.

    Raises:
        ValueError: if the scores are no vector of float64.
    """
    if scores.dtype != np.float64 or scores.ndim != 1:
        raise ValueError(f"errors: scores are [n] in float64, not {list(scores.shape)} in {scores.dtype}")
    g = np.arange(1, HARMONICS + 1)[:, None]
    direct = np.cos(g.astype(np.float32) * scores.astype(np.float32))
    terms = [np.ones_like(direct[0]), direct[0]]
    while len(terms) <= HARMONICS:
        terms.append(2 * terms[1] * terms[-1] - terms[-2])
    exact = np.cos(g * scores)
    return np.abs(terms[1:] - exact).max(1), np.abs(direct - exact).max(1)


def recurrence(rng: np.random.Generator, *, count: int = 200_000) -> Figure:
    """Errors of both ways against the harmonic, for scores up to π, 30 and 300, beside that of bfloat16.

    Args:
        rng: draws the scores, evenly.
        count: how many of each range.

    Taught in: chapter 17.
    """
    figure, axes = plt.subplots(figsize=(COLUMN, 2.8))
    g = np.arange(1, HARMONICS + 1)
    for reach, shade in ((np.pi, "blue"), (30.0, "orange"), (300.0, "vermilion")):
        ours, direct = errors(rng.uniform(-reach, reach, count))
        axes.semilogy(g, ours, "o-", color=PALETTE[shade], label=f"|S| up to {reach:.3g}")
        axes.semilogy(g, direct, "--", color=PALETTE[shade])
    axes.axhline(ROUNDING, color="gray", label="bfloat16")
    axes.set(xlabel="harmonic g", ylabel="largest error", ylim=(3e-8, 0.2))
    axes.legend(fontsize=8, ncols=4, loc="upper center")
    return figure
