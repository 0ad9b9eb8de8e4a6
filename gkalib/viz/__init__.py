"""The book's figures: their style, digests and controls, maps of weights, and a trained model's figures."""

from gkalib.extras import moved, needed_by

with needed_by("a figure"):
    from gkalib.viz import curves, dots, figures, maps, style
    from gkalib.viz.drag import Drag, drag
    from gkalib.viz.explore import Explore, explore
    from gkalib.viz.figures import bandwidth_lines
    from gkalib.viz.wipe import Wipe

__getattr__ = moved(
    __name__,
    {
        "bandwidth_map": "gkalib.viz.figures.bandwidth_figure",
        "bank_lines": "gkalib.viz.figures.bank_figure",
        "compared": "in chapters.figures one_budget, vision_transformers and karat_cifar",
        "harmonics": "chapters.figures.bias_and_rows",
        "lags": "in chapters.figures bias_and_rows, gpa_dickens and rbf_tinystories",
        "machine": "in chapters.figures memory_wall and triton_backward",
        "names": "chapters.figures.one_budget",
        "processes": "chapters.figures.kernels",
        "smoothers": "chapters.figures.non_local_means",
        "surfaces": "chapters.figures.landscapes_and_spectra",
        "trajectories": "chapters.figures.landscapes_and_spectra",
    },
)

__all__ = [
    "Drag",
    "Explore",
    "Wipe",
    "bandwidth_lines",
    "curves",
    "dots",
    "drag",
    "explore",
    "figures",
    "maps",
    "style",
]
