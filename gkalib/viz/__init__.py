"""The book's figures: their style, digests and controls, maps of weights, and a trained model's figures."""

from gkalib.extras import moved, needed_by

with needed_by("a figure"):
    from gkalib.viz import (
        compared,
        curves,
        dots,
        figures,
        maps,
        processes,
        smoothers,
        style,
        surfaces,
        trajectories,
    )
    from gkalib.viz.drag import Drag, drag
    from gkalib.viz.explore import Explore, explore
    from gkalib.viz.figures import bandwidth_lines, bandwidth_map, bank_lines

__getattr__ = moved(
    __name__,
    {
        "harmonics": "chapters.figures.bias_and_rows",
        "lags": "in chapters.figures bias_and_rows, gpa_dickens and rbf_tinystories",
        "machine": "in chapters.figures memory_wall and triton_backward",
    },
)

__all__ = [
    "Drag",
    "Explore",
    "bandwidth_lines",
    "bandwidth_map",
    "bank_lines",
    "compared",
    "curves",
    "dots",
    "drag",
    "explore",
    "figures",
    "maps",
    "processes",
    "smoothers",
    "style",
    "surfaces",
    "trajectories",
]
