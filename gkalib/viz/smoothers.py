"""Pictures of smoothers of images: a result beside what it removed, and spectra of matrices of weights."""

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gkalib.viz.style import COLUMN, PALETTE


def removed(
    noisy: np.ndarray, result: np.ndarray, *, title: str, **shades: float | str
) -> tuple[Figure, Axes]:
    """A smoothed image, what was removed from the noisy one, and room for a plot.

    Args:
        noisy: the image, ``[height, width]``.
        result: the same smoothed.
        title: of the result.
        shades: of the result, as for ``imshow``.

    Returns:
        The figure and its empty panel at the right.

    Raises:
        ValueError: if the images have different sizes.

    Taught in: chapter 5.
    """
    if noisy.shape != result.shape:
        raise ValueError(f"removed: the images are {list(noisy.shape)} and {list(result.shape)}")
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(COLUMN, 2.5), width_ratios=[1, 1, 1.4])
    left.imshow(result, **shades)
    left.set_title(title)
    middle.imshow(noisy - result, cmap="gray", vmin=-0.3, vmax=0.3)
    middle.set_title("removed")
    for axes in (left, middle):
        axes.axis("off")
    return figure, right


def spectra(found: Mapping[str, tuple[Any, Any]], *, shape: tuple[int, int]) -> Figure:
    """Eigenvalues and their squares of two matrices of weights, and the second to fourth eigenvector of each.

    The largest entry of an eigenvector is drawn as 1. Of entries as large as that but for a hundredth, as the
    peaks and troughs of a wave are, the first is positive.

    Args:
        found: by name, eigenvalues from the largest, ``[n]``, and eigenvectors in columns, ``[n 4]`` or more,
            tensors or arrays.
        shape: of the image, height and width.

    Raises:
        ValueError: if there are not two matrices.

    Taught in: chapter 5.
    """
    if len(found) != 2:
        raise ValueError(f"spectra: two matrices are compared, not {len(found)}")
    figure = plt.figure(figsize=(COLUMN, 3.4))
    grid = figure.add_gridspec(2, 5, width_ratios=[1.1, 1.1, 1, 1, 1])
    left = figure.add_subplot(grid[:, :2])
    for place, (name, (values, vectors)) in enumerate(found.items()):
        shade = PALETTE["blue" if place == 0 else "vermilion"]
        number, values = np.arange(1, len(values) + 1), np.asarray(values)
        left.plot(number, values, color=shade, label=name)
        left.plot(number, values**2, ":", color=shade)
        for index in range(1, 4):
            axes, wave = figure.add_subplot(grid[place, 1 + index]), np.asarray(vectors)[:, index]
            size = np.abs(wave).max()
            wave = wave * np.sign(wave[np.abs(wave) > 0.99 * size][0]) / size
            axes.imshow(wave.reshape(shape), cmap="PuOr", vmin=-1, vmax=1)
            axes.set_title(f"λ = {values[index]:.3f}", fontsize=9)
            axes.axis("off")
    left.set(xlabel="index l", ylabel="eigenvalue", xscale="log", ylim=(-0.02, 1.02))
    left.legend(fontsize=8)
    return figure
