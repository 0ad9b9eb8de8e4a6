"""Kernels of the lag in pictures: each with its spectrum and random draws with its covariances."""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure

from gkalib.kernels import Kernel
from gkalib.viz.digest import array
from gkalib.viz.style import COLUMN, PALETTE

FAR = 4000
"""The largest lag in the sum that is the spectrum."""


def draws(kernel: Kernel, noise: np.ndarray, *, lags: int = 60, highest: float = 0.3) -> Figure:
    r"""A kernel of the lag, its spectrum, and draws with its covariances from given noise.

    $$S(f) = \sum_k \kappa(k) \cos 2\pi f k, \qquad y = L z, \quad L L^\top = K$$

    Args:
        kernel: positive semi-definite on the line, and zero, nearly, at a lag of 4000.
        noise: z, independent and standard normal, ``[n draws]``; the draws are at the times 0 … n − 1.
        lags: the last lag of the left panel.
        highest: the last frequency of the middle panel.

    Raises:
        ValueError: if the noise is not a matrix.
    """
    if noise.ndim != 2:
        raise ValueError(f"draws: the noise has shape {list(noise.shape)}; it must be [n draws]")
    place = torch.arange(FAR + 1, dtype=torch.float64)[None, None, :, None]
    kappa = kernel(place[:, :, :1], place)[0, 0, 0].numpy()
    frequency = np.linspace(0, highest, 601)
    spectrum = 2 * np.cos(2 * np.pi * np.outer(frequency, np.arange(FAR + 1))) @ kappa - kappa[0]
    times = place[:, :, : len(noise)]
    found = torch.linalg.cholesky(kernel(times, times)[0, 0]).numpy() @ noise
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(COLUMN, 2.3), width_ratios=[1, 1, 1.7])
    left.plot(kappa[: lags + 1])
    left.set(xlabel="lag (years)", title="kernel", ylim=(0, 1.05))
    middle.semilogy(frequency, spectrum, color=PALETTE["green"])
    middle.set(xlabel="frequency", title="spectrum", ylim=(1e-2, 300))
    right.plot(found - 6 * np.arange(noise.shape[1]), linewidth=1.2)
    right.set(xlabel="time (years)", title="draws", ylim=(2 - 6 * noise.shape[1], 4), yticks=[])
    return figure


def table(
    rows: Sequence[tuple[str, str, Any, Any, Any]], *, lags: Any, frequencies: Any, times: Any
) -> Figure:
    """A row for each kernel of the lag: the kernel, its spectrum, and a random function with its covariances.

    Args:
        rows: the kernel's name and formula, where it is positive semi-definite, its values at the lags, its
            spectrum at the frequencies, and the function at the times, or None where there is none.
        lags, frequencies, times: the horizontal axes of the three columns.
    """
    figure, panels = plt.subplots(len(rows), 3, figsize=(5.2, 1.2 * len(rows) + 0.6), sharex="col")
    for (left, middle, right), (name, where, kappa, spectrum, path) in zip(panels, rows, strict=True):
        spectrum = array(spectrum)
        left.plot(lags, array(kappa))
        left.set(title=name, ylim=(-0.05, 1.1))
        middle.plot(frequencies, spectrum, color=PALETTE["green"])
        middle.fill_between(frequencies, spectrum, 0, where=spectrum < 0, color=PALETTE["vermilion"])
        middle.axhline(0, color="gray", linewidth=0.6)
        right.set_title(where, loc="right", color="dimgray")
        if path is None:
            right.text(0.5, 0.5, "none exists", ha="center", va="center", transform=right.transAxes)
        else:
            right.plot(times, path, color=PALETTE["black"], linewidth=1.2)
    for axes in panels.flat:
        axes.set(yticks=[])
    panels[-1, 0].set(xlabel="lag", xticks=[-3, 0, 3])
    panels[-1, 1].set(xlabel="frequency", xticks=[0, 0.5, 1, 1.5])
    panels[-1, 2].set(xlabel="time")
    return figure
