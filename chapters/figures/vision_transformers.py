"""Images as training sees them, and what a piece of a recipe is worth."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from gkalib.results.verdicts import Judgment
from gkalib.viz import style
from gkalib.viz.digest import array

HALF = 0.15  # of what lies between two contrasts of a row


def images(panels: Iterable[Axes], images: Iterable) -> None:
    """Draw normalized images in their colors, without ticks or frame.

    Args:
        panels: one for each image.
        images: tensors or arrays `[3, height, width]`, shifted and divided by ImageNet's mean and standard
            deviation of each color; what lies outside the range of colors is cut off.
    """
    mean, deviation = np.array([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])
    for axes, image in zip(panels, images, strict=True):
        axes.imshow(np.clip(array(image).transpose(1, 2, 0) * deviation + mean, 0, 1))
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)


def contrasts(
    axes: Axes,
    rows: Mapping[str, Mapping[str, str]],
    found: Mapping[str, Judgment],
    values: Mapping[str, Sequence[float]],
) -> None:
    """Draw contrasts in rows, each with its interval and a dot for each seed; a row's lie one below another.

    Args:
        axes: where to draw.
        rows: by name from the top, the row's contrasts by their colors of the palette.
        found: what became of each contrast.
        values: of each contrast, one for each seed.
    """
    axes.axvline(0, color="gray", linewidth=0.8)
    for place, row in enumerate(rows.values()):
        heights = place + HALF * np.arange(1 - len(row), len(row), 2)
        for height, (shade, name) in zip(heights, row.items(), strict=True):
            color = style.PALETTE[shade]
            axes.plot([found[name].low, found[name].high], [height] * 2, color=color, linewidth=1)
            axes.plot(values[name], [height] * len(values[name]), "o", color=color, markersize=4)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.invert_yaxis()
