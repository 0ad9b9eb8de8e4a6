"""Weight matrices as pictures, and weights on patches as maps over or beside the picture of the patches."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle

from gkalib.analysis.patches import patch_grid
from gkalib.viz import style
from gkalib.viz.digest import array

HEAT = "inferno"


def weights(
    axes: Axes, matrix, *, title: str = "", largest: float | int | None = None, row: int | None = None
) -> AxesImage:
    """Draw a weight matrix W, queries down and keys across, dark for zero and bright for `largest`.

    Args:
        axes: where to draw.
        matrix: `[n, m]` weights, tensor or array; negative weights switch to a diverging map around zero.
        title: what the matrix is.
        largest: the weight at the end of the color map, the largest in the matrix unless given.
        row: a query to frame.

    Raises:
        ValueError: when the matrix has not two axes.

    Taught in: chapter 01.
    """
    matrix = array(matrix)
    if matrix.ndim != 2:
        raise ValueError(f"maps.weights: a weight matrix has two axes, this one has shape {matrix.shape}")
    signed = bool((matrix < 0).any())
    largest = float(abs(matrix).max()) if largest is None else largest
    image = axes.imshow(
        matrix,
        cmap=style.DIVERGING if signed else style.SEQUENTIAL,
        vmin=-largest if signed else 0.0,
        vmax=largest,
        aspect="auto",
    )
    if row is not None:
        axes.axhspan(
            row - 0.5, row + 0.5, facecolor="none", edgecolor=style.PALETTE["vermilion"], linewidth=1.5
        )
    axes.set(title=title, xlabel="key", ylabel="query")
    return image


def overlay(
    axes: Axes,
    picture,
    map,
    *,
    alpha: float | int = 0.6,
    largest: float | int | None = None,
    query: tuple[int, int] | None = None,
    title: str = "",
) -> AxesImage:
    """Lay a map of patches over its picture: bilinear in between, inferno, partly transparent.

    Args:
        axes: where to draw.
        picture: `[height, width]` gray or `[height, width, 3]`, from 0 to 1 or whole numbers up to 255.
        map: `[rows, columns]` weights of the patches, tensor or array.
        alpha: how opaque the map is.
        largest: the weight at the bright end, the largest in the map unless given.
        query: (row, column) of a patch to frame.
        title: what the map is.

    Raises:
        ValueError: when the picture or the map has other axes.

    References:
        Kundu et al., Gaussian Kernel Attention, 2026, section 7.4. Taught in: chapter 23.
    """
    picture, map = _picture(picture), array(map)
    if map.ndim != 2:
        raise ValueError(f"maps.overlay: a map has two axes, this one has shape {map.shape}")
    height, width = picture.shape[:2]
    extent = (-0.5, width - 0.5, height - 0.5, -0.5)
    axes.imshow(picture, cmap="gray" if picture.ndim == 2 else None, extent=extent)
    image = axes.imshow(
        map, cmap=HEAT, alpha=alpha, vmin=0.0, vmax=largest, interpolation="bilinear", extent=extent
    )
    if query is not None:
        down, across = height / map.shape[0], width / map.shape[1]
        corner = query[1] * across - 0.5, query[0] * down - 0.5
        axes.add_patch(Rectangle(corner, across, down, fill=False, color=style.PALETTE["sky"], linewidth=1.5))
    axes.set(title=title, xticks=[], yticks=[])
    return image


def patches(axes: Axes, map, *, largest: float | int | None = None, title: str = "") -> AxesImage:
    """Draw a map of patches as square blocks, dark for zero and bright for `largest`.

    A block a patch, to stand beside the picture: laid over it, a map takes on the picture's grays, and what
    is drawn between the centers of patches is interpolation.

    Args:
        axes: where to draw.
        map: `[rows, columns]` weights of the patches, tensor or array.
        largest: the weight at the bright end, the largest in the map unless given.
        title: what the map is.

    Raises:
        ValueError: when the map has other axes.

    Taught in: chapter 23.
    """
    map = array(map)
    if map.ndim != 2:
        raise ValueError(f"maps.patches: a map has two axes, this one has shape {map.shape}")
    image = axes.imshow(map, cmap=style.SEQUENTIAL, vmin=0.0, vmax=largest, interpolation="nearest")
    axes.set(title=title, xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    return image


def beside(pictures, maps: Mapping[str, Any], *, names: Sequence[str] = ()) -> Figure:
    """Pictures in a column, and beside each its maps, a block a patch, each relative to its largest value.

    Args:
        pictures: `[rows, height, width]` gray, tensor or array.
        maps: by title, `[rows, P²]` weights of the patches, zero or more; a map of zeros is dark.
        names: of the rows.

    Raises:
        ValueError: when there are not as many maps of a title as pictures, or the patches are no square.

    Taught in: chapter 23.
    """
    rows, columns = len(pictures), 1 + len(maps)
    size = style.COLUMN, 0.85 * style.COLUMN / columns * rows + 0.3
    figure, panels = plt.subplots(rows, columns, figsize=size, squeeze=False)
    for axes, picture in zip(panels[:, 0], array(pictures), strict=True):
        axes.imshow(picture, cmap="gray")
        axes.set(xticks=[], yticks=[])
    for axes, name in zip(panels[:, 0], names, strict=False):
        axes.set_ylabel(name)
    blocks = []
    for column, (title, drawn) in zip(panels[:, 1:].T, maps.items(), strict=True):
        for axes, row in zip(column, array(drawn), strict=True):
            blocks.append(patches(axes, patch_grid(row / (row.max() or 1)), largest=1))
        column[0].set_title(title)
    figure.colorbar(blocks[0], ax=panels, label="relative to the map's largest", shrink=0.8)
    return figure


def images(panels: Iterable[Axes], images: Iterable) -> None:
    """Draw normalized images in their colors, without ticks or frame.

    Args:
        panels: one for each image.
        images: tensors or arrays `[3, height, width]`, shifted and divided by ImageNet's mean and standard
            deviation of each color; what lies outside the range of colors is cut off.

    Taught in: chapter 21.
    """
    mean, deviation = np.array([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])
    for axes, image in zip(panels, images, strict=True):
        axes.imshow(np.clip(array(image).transpose(1, 2, 0) * deviation + mean, 0, 1))
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)


def gallery(images: Mapping[str, Sequence], titles: Sequence[str]) -> Figure:
    """Gray images in rows, each row with its name at the left and each column with its title above.

    Args:
        images: by name of the row, one ``[height, width]`` from 0 to 1 for each title, tensors or arrays.
        titles: of the columns.

    Raises:
        ValueError: if a row has not one image for each title.

    Taught in: chapter 10.
    """
    size = style.COLUMN, 0.2 + style.COLUMN / len(titles) * len(images)
    figure, panels = plt.subplots(len(images), len(titles), figsize=size, squeeze=False)
    for line, (name, row) in zip(panels, images.items(), strict=True):
        for axes, image in zip(line, row, strict=True):
            axes.imshow(array(image), cmap="gray", vmin=0, vmax=1)
            axes.set(xticks=[], yticks=[])
        line[0].set_ylabel(name, fontsize=9)
    for axes, title in zip(panels[0], titles, strict=True):
        axes.set_title(title, fontsize=9)
    return figure


def off_diagonal(matrix) -> np.ndarray:
    """A weight matrix whose diagonal is zero, so that colors tell the other weights apart.

    Args:
        matrix: `[…, n, n]`, tensor or array.

    Raises:
        ValueError: when it is not square.

    References:
        Kundu et al., Gaussian Kernel Attention, 2026, section 7.7. Taught in: chapter 23.
    """
    matrix = array(matrix)
    if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2]:
        raise ValueError(f"maps.off_diagonal: needs as many keys as queries, not shape {matrix.shape}")
    return np.where(np.eye(matrix.shape[-1], dtype=bool), 0.0, matrix)


def rows(axes: Axes, tokens, first: int, *, title: str = "") -> AxesImage:
    """Rows of tokens with one color per document, and a dot before each row that begins a document.

    Args:
        axes: where to draw.
        tokens: `[rows, width]`, tensor or array; −1 is padding, which is left white.
        first: the token that begins a document.
        title: above the panel.

    Taught in: chapter 20.
    """
    tokens = array(tokens)
    document = np.cumsum((tokens == first).ravel()).reshape(tokens.shape)
    shades = np.where(tokens < 0, np.nan, document * 7 % 20)  # neighbors differ visibly
    image = axes.imshow(shades, aspect="auto", cmap="tab20", interpolation="nearest", vmin=0, vmax=19)
    begins = np.flatnonzero(tokens[:, 0] == first)
    axes.plot(np.full(len(begins), -5), begins, ".", color="black", clip_on=False, ms=3)
    axes.set(title=title, xlabel="token", xlim=(-8, tokens.shape[1]), yticks=[])
    axes.grid(False)
    return image


def _picture(picture) -> np.ndarray:
    """A picture with values from 0 to 1."""
    values = np.asarray(picture)
    if values.ndim not in (2, 3) or (values.ndim == 3 and values.shape[2] != 3):
        raise ValueError(
            f"maps.overlay: a picture is [height, width] or [height, width, 3], not {values.shape}"
        )
    return values / 255 if values.dtype == np.uint8 else values
