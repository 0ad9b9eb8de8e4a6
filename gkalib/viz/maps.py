"""Weight matrices as pictures, and weights on patches as maps over the picture of the patches."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle

from gkalib.extras import moved
from gkalib.viz import style
from gkalib.viz.digest import array

HEAT = "inferno"

__getattr__ = moved(
    __name__,
    {
        "beside": "chapters.figures.looking_inside.beside",
        "gallery": "chapters.figures.bounded_confidence.gallery",
        "images": "chapters.figures.vision_transformers.images",
        "rows": "chapters.figures.language_models.rows",
    },
)


def weights(axes: Axes, matrix, *, title: str = "", largest: float | int | None = None) -> AxesImage:
    """Draw a weight matrix W, queries down and keys across, dark for zero and bright for `largest`.

    Args:
        axes: where to draw.
        matrix: `[n, m]` weights, tensor or array; negative weights switch to a diverging map around zero.
        title: what the matrix is.
        largest: the weight at the end of the color map, the largest in the matrix unless given.

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
    axes.set(title=title, xlabel="key", ylabel="query")
    return image


def overlay(
    axes: Axes,
    picture,
    map,
    *,
    query: tuple[int, int] | None = None,
    title: str = "",
) -> AxesImage:
    """Lay a map of patches over its picture: bilinear in between, inferno, partly transparent.

    Args:
        axes: where to draw.
        picture: `[height, width]` gray or `[height, width, 3]`, from 0 to 1 or whole numbers up to 255.
        map: `[rows, columns]` weights of the patches, tensor or array.
        query: (row, column) of a patch to frame.
        title: what the map is.

    Raises:
        ValueError: when the picture or the map has other axes.

    References:
        Kundu et al., Gaussian Kernel Attention, 2026, section 7.4. Taught in: chapter 25.
    """
    picture, map = _picture(picture), array(map)
    if map.ndim != 2:
        raise ValueError(f"maps.overlay: a map has two axes, this one has shape {map.shape}")
    height, width = picture.shape[:2]
    extent = (-0.5, width - 0.5, height - 0.5, -0.5)
    axes.imshow(picture, cmap="gray" if picture.ndim == 2 else None, extent=extent)
    image = axes.imshow(map, cmap=HEAT, alpha=0.6, vmin=0.0, interpolation="bilinear", extent=extent)
    if query is not None:
        down, across = height / map.shape[0], width / map.shape[1]
        corner = query[1] * across - 0.5, query[0] * down - 0.5
        axes.add_patch(Rectangle(corner, across, down, fill=False, color=style.PALETTE["sky"], linewidth=1.5))
    axes.set(title=title, xticks=[], yticks=[])
    return image


def off_diagonal(matrix) -> np.ndarray:
    """A weight matrix whose diagonal is zero, so that colors tell the other weights apart.

    Args:
        matrix: `[…, n, n]`, tensor or array.

    Raises:
        ValueError: when it is not square.

    References:
        Kundu et al., Gaussian Kernel Attention, 2026, section 7.7. Taught in: chapter 25.
    """
    matrix = array(matrix)
    if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2]:
        raise ValueError(f"maps.off_diagonal: needs as many keys as queries, not shape {matrix.shape}")
    return np.where(np.eye(matrix.shape[-1], dtype=bool), 0.0, matrix)


def _picture(picture) -> np.ndarray:
    """A picture with values from 0 to 1."""
    values = np.asarray(picture)
    if values.ndim not in (2, 3) or (values.ndim == 3 and values.shape[2] != 3):
        raise ValueError(
            f"maps.overlay: a picture is [height, width] or [height, width, 3], not {values.shape}"
        )
    return values / 255 if values.dtype == np.uint8 else values
