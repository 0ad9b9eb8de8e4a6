"""Pictures of smoothers of images: pieces of an image, what was removed from it, and spectra of weights."""

from collections.abc import Collection, Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor
from torch.nn.functional import pad, unfold

from gkalib.kernels import Gaussian
from gkalib.smoothing import attention_weights, smooth
from gkalib.viz.style import COLUMN, PALETTE


def denoised(noisy: np.ndarray, h: float, *, width: int = 7) -> np.ndarray:
    """Non-local means of an image, as the chapter computes it, in float32.

    Args:
        noisy: ``[height width]``.
        h: the bandwidth.
        width: of a patch.
    """
    offset = torch.arange(width) - width // 2
    bump = torch.exp(-(offset**2) / (2 * max((width - 1) / 4, 1) ** 2))
    weight = (bump[:, None] * bump).flatten() / bump.sum() ** 2
    pixels = torch.tensor(noisy, dtype=torch.float32)
    padded = pad(pixels[None, None], [width // 2] * 4, mode="reflect")
    query = unfold(padded, width)[0].mT * weight.sqrt() / h
    parts = [smooth(part, query, pixels.flatten(), Gaussian(1.0)) for part in query.split(1024)]
    return torch.cat(parts).reshape(noisy.shape).numpy()


def framed(
    images: Mapping[str, np.ndarray],
    spots: Mapping[str, tuple[int, int, str]],
    *,
    radius: int,
    **shades: float | str,
) -> Figure:
    """Images of one size side by side, frames in the last, and beside it the pixels in each frame, enlarged.

    Args:
        images: by title, ``[height, width]``.
        spots: by name of the frame, row and column of the pixel in its middle, and a color of the palette.
        radius: how far a frame reaches from this pixel, which makes it 2 radius + 1 pixels wide.
        shades: of the images, as for ``imshow``.

    Raises:
        ValueError: if a frame leaves the image.
    """
    last, side = list(images.values())[-1], 2 * radius + 1
    height, width = last.shape
    for name, (i, j, _) in spots.items():
        if not (radius <= i < height - radius and radius <= j < width - radius):
            raise ValueError(f"framed: frame {name} around {i, j} leaves the {height} × {width} pixels")
    ratios = [2] * len(images) + [1] * len(spots)
    figure, panels = plt.subplots(1, len(ratios), figsize=(COLUMN, 2.1), width_ratios=ratios, squeeze=False)
    wholes, pieces = panels[0, : len(images)], panels[0, len(images) :]
    for axes, (title, image) in zip(wholes, images.items(), strict=True):
        axes.imshow(image, **shades)
        axes.set_title(title)
    for axes, (name, (i, j, shade)) in zip(pieces, spots.items(), strict=True):
        edge = {"fill": False, "edgecolor": PALETTE[shade]}
        top, left = i - radius, j - radius
        wholes[-1].add_patch(Rectangle((left - 0.5, top - 0.5), side, side, linewidth=1.8, **edge))
        wholes[-1].text(j, top - 3, name, va="center", ha="center", backgroundcolor="white", fontsize=7)
        axes.imshow(last[top : top + side, left : left + side], **shades)
        axes.add_patch(Rectangle((-0.5, -0.5), side, side, linewidth=4, **edge))
        axes.set_title(f"frame {name}")
    plt.setp(panels.ravel(), xticks=[], yticks=[])
    return figure


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


def weight_maps(
    image: np.ndarray,
    queries: Mapping[str, Tensor],
    spots: Mapping[str, tuple[int, int]],
    *,
    near: Collection[str] = (),
    **shades: float | str,
) -> Figure:
    """What pixels of an image average in some smoothers, a row for each pixel, with effective neighbors.

    Colors end at the largest weight of another pixel.

    Args:
        image: ``[height, width]``.
        queries: by name of the smoother, a token for each pixel, ``[height · width, d]``; the weights are
            those of a Gaussian with σ = 1.
        spots: by name, the row and the column of a pixel.
        near: smoothers of which only the 11 × 11 pixels around are drawn.
        shades: of the image, as for ``imshow``.

    Raises:
        ValueError: if the tokens are not as many as the pixels, or a pixel lies too near the edge to be drawn
            with 5 on either side.
    """
    height, width = image.shape
    for name, query in queries.items():
        if len(query) != image.size:
            raise ValueError(f"weight_maps: {name} has {len(query)} tokens for {image.size} pixels")
    inside = all(5 <= i < height - 5 and 5 <= j < width - 5 for i, j in spots.values())
    if near and not inside:
        raise ValueError(f"weight_maps: around each of {spots} are not 11 × 11 pixels of {height} × {width}")
    figure, axes = plt.subplots(
        len(spots), 1 + len(queries), figsize=(COLUMN, 0.2 + 1.9 * len(spots)), squeeze=False
    )
    mark = {"markersize": 9, "markerfacecolor": "none", "color": PALETTE["vermilion"]}
    for line, (label, (i, j)) in zip(axes, spots.items(), strict=True):
        line[0].imshow(image, **shades)
        line[0].plot(j, i, "s", **mark)
        line[0].set_ylabel(label)
        for panel, (name, query) in zip(line[1:], queries.items(), strict=True):
            own = query[[i * width + j]]
            w = attention_weights(own, query, Gaussian(1.0)).reshape(image.shape).numpy()
            largest, around = np.sort(w, axis=None)[-2], name in near
            panel.imshow(w[i - 5 : i + 6, j - 5 : j + 6] if around else w, vmin=0, vmax=largest)
            panel.plot(*((5, 5) if around else (j, i)), "s", **mark)
            panel.set_xlabel(f"{1 / (w**2).sum():.0f} neighbors", fontsize=9)
    for panel, name in zip(axes[0, 1:], queries, strict=True):
        part = "11 × 11 pixels" if name in near else "whole image"
        panel.set_title(f"{name}\n{part}", fontsize=9)
    for panel in axes.flat:
        panel.set(xticks=[], yticks=[])
    return figure


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
            axes.set(xticks=[], yticks=[], frame_on=False)
            if index == 1:
                axes.set_ylabel(name, color=shade)
    left.set(xlabel="index l", ylabel="eigenvalue (dotted: its square)", xscale="log", ylim=(-0.02, 1.02))
    left.legend(fontsize=8)
    return figure
