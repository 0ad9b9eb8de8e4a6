"""A short text that says what a figure plots, so that a stale picture is found without comparing pixels."""

import json
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import Collection
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from matplotlib.quiver import Quiver
from PIL import Image, PngImagePlugin

MIME = "application/vnd.gkalib.digest+json"

# No grid line and no decade may lie where data like to lie (0, 1, 0.5), or rounding noise would flip a digit.
_OFFSET = 0.2718
_DECADE = 0.73


def array(values) -> np.ndarray:
    """Return a tensor, list or array as a float64 array, off whatever device it is on."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    values = np.ma.filled(np.ma.asarray(values).astype(np.float64), np.nan)
    return np.atleast_1d(values)


def summary(values) -> str:
    """Describe an array by its shape, its extremes and three projections, at three significant digits.

    The digits are counted from the largest magnitude in the array, so rounding noise in a number near zero
    does not show. A projection is Σ aᵢ cos(cₖ i) / √n: unlike a mean it moves when values change places.

    - Equal arrays have equal summaries.
    - Relative noise ε in the values changes a summary with probability of about 10³ ε or less for each of
      its five numbers: 10⁻¹⁰ for float64 noise, 10⁻³ for float32 noise (plot float64 where you can).
    - A summary changes for certain when an extreme or a projection moves by a hundredth of the largest
      magnitude; one value of n moves a projection by up to 1/√n of its own change.
    """
    values = array(values)
    shape = "x".join(str(size) for size in values.shape)
    flat = values.ravel()
    finite = np.isfinite(flat)
    lost = "" if finite.all() else f" ({int((~finite).sum())} not finite)"
    if not finite.any():
        return shape + lost
    low, high = flat[finite].min(), flat[finite].max()
    flat = np.where(finite, flat, 0.0)
    peak = max(abs(low), abs(high))
    if peak == 0.0:
        return f"{shape}{lost} zeros"
    step = 10.0 ** (np.floor(np.log10(peak * _DECADE)) - 2)
    order = np.arange(flat.size)
    projections = [(flat * np.cos(c * order + c)).sum() / np.sqrt(flat.size) for c in (0.1, 1.3, 2.9)]
    numbers = [int(np.floor(number / step + _OFFSET)) for number in (low, high, *projections)]
    return f"{shape}{lost} {' '.join(str(number) for number in numbers)} e{round(np.log10(step))}"


def digest(figure: Figure) -> dict[str, list[str]]:
    """Summarize every array and every text of a figure: `{"axes 0": ["line 200x2 …", …], …}`.

    Taught in: how-to-read (what the checks on a figure compare).
    """
    every = [*figure.axes, *(inset for axes in figure.axes for inset in axes.child_axes)]
    summaries = {f"axes {index}": _axes(axes) for index, axes in enumerate(every)}
    texts = [f"text {text.get_text()}" for text in figure.texts if text.get_text()]
    return {**summaries, "figure": texts} if texts else summaries


def _axes(axes: Axes) -> list[str]:
    lines = [_line(line) for line in axes.lines]
    collections = [entry for collection in axes.collections for entry in _collection(collection)]
    images = [f"image {summary(image.get_array())}" for image in axes.images]
    patches = [
        f"patch {summary(patch.get_patch_transform().transform(patch.get_path().vertices))}"
        for patch in axes.patches
        if not isinstance(patch, FancyArrowPatch)  # its path depends on the layout; its ends are in the code
    ]
    legend = axes.get_legend()
    texts = [axes.get_title(loc=side) for side in ("left", "center", "right")]
    texts += [axes.get_xlabel(), axes.get_ylabel(), *(text.get_text() for text in axes.texts)]
    texts += [text.get_text() for text in legend.get_texts()] if legend else []
    return [*lines, *collections, *images, *patches, *(f"text {text}" for text in texts if text)]


def _line(line) -> str:
    data = line.get_data_3d() if hasattr(line, "get_data_3d") else line.get_data(orig=False)
    return f"line {summary(np.stack([array(values) for values in data], axis=-1))}"


def _collection(collection: Collection) -> list[str]:
    entries = []
    if isinstance(collection, ContourSet):
        # Vertices of a contour come and go with rounding noise: its levels and range do not.
        low, high = (getattr(collection, name) for name in ("zmin", "zmax"))  # in no type stub
        return [f"contour {summary([*collection.levels, low, high])}"]
    offsets = getattr(collection, "_offsets3d", None)
    offsets = collection.get_offsets() if offsets is None else np.stack([array(o) for o in offsets], axis=-1)
    if np.size(offsets) and np.any(array(offsets) != 0.0):
        entries.append(f"points {summary(offsets)}")
    else:
        paths = [path.vertices for path in collection.get_paths() if np.size(path.vertices)]
        if paths:
            entries.append(f"paths {summary(np.concatenate(paths))}")
    if isinstance(collection, Quiver):
        entries.append(f"arrows {summary(np.stack([collection.U, collection.V]))}")
    if collection.get_array() is not None:
        entries.append(f"colours {summary(collection.get_array())}")
    return entries


def save(figure: Figure, path: Path) -> None:
    """Write a figure as a PNG of 64 colors that carries the digest of what it plots."""
    figure.savefig(path)
    note = PngImagePlugin.PngInfo()
    note.add_text("digest", json.dumps(digest(figure)))
    Image.open(path).convert("RGB").quantize(64).save(path, optimize=True, pnginfo=note)
