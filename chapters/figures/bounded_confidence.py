"""Images that are smoothed step by step."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from gkalib.viz import style
from gkalib.viz.digest import array


def gallery(images: Mapping[str, Sequence], titles: Sequence[str]) -> Figure:
    """Gray images in rows, each row with its name at the left and each column with its title above.

    Args:
        images: by name of the row, one ``[height, width]`` from 0 to 1 for each title, tensors or arrays.
        titles: of the columns.

    Raises:
        ValueError: if a row has not one image for each title.
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
