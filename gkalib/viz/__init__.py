"""The book's figures: their style, digests and controls, maps of weights, and a trained model's figures."""

from gkalib.extras import needed_by

with needed_by("a figure"):
    from gkalib.viz import (
        compared,
        curves,
        dots,
        figures,
        harmonics,
        lags,
        machine,
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
    "harmonics",
    "lags",
    "machine",
    "maps",
    "processes",
    "smoothers",
    "style",
    "surfaces",
    "trajectories",
]
