"""Weight matrices as pictures."""

from matplotlib.axes import Axes
from matplotlib.image import AxesImage

from gkalib.viz import style
from gkalib.viz.digest import array


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
