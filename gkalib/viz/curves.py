"""Named curves over one axis, and logarithmic axes with plain numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from gkalib.viz import style
from gkalib.viz.digest import array


def named(axes: Axes, x: Any, curves: Mapping[str, tuple[Any, str]], *, line: str = "o-") -> None:
    """Draw a curve for each name, which is its label for a legend.

    Args:
        axes: where to draw.
        x: ``[n]``, of all curves.
        curves: by name, its values ``[n]`` and a color of the palette; tensors, arrays or lists.
        line: the marker and the line of all curves.

    Taught in: chapter 29.
    """
    for name, (values, shade) in curves.items():
        axes.plot(array(x), array(values), line, color=style.PALETTE[shade], label=name)


def log_ticks(axes: Axes, places: Sequence[float | int]) -> None:
    """Make the horizontal axis logarithmic, with ticks at these places alone, written as plain numbers.

    Taught in: chapter 29.
    """
    axes.set_xscale("log")
    axes.set_xticks(places, [f"{place:g}" for place in places])
    axes.minorticks_off()
