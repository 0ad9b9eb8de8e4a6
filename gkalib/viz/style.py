"""The look of every figure in the book, and the picture and digest a notebook stores for it."""

import io
from typing import Any

import matplotlib as mpl
from cycler import cycler
from matplotlib.figure import Figure

from gkalib.viz.digest import MIME, digest

# Okabe and Ito's palette, told apart with any common color vision; its yellow is too pale for a line.
PALETTE = {
    "blue": "#0072B2",
    "orange": "#E69F00",
    "green": "#009E73",
    "vermilion": "#D55E00",
    "purple": "#CC79A7",
    "sky": "#56B4E9",
    "black": "#000000",
}
COLUMN = 7.0  # inches: the width of the book's text column
SEQUENTIAL = "cividis"
DIVERGING = "PuOr"

_RC: dict[Any, Any] = {
    "figure.figsize": (COLUMN, 3.6),
    "figure.dpi": 130,
    "savefig.dpi": "figure",
    # Opaque and light, so that a figure is legible on a dark page too.
    "figure.facecolor": "#FCFCFC",
    "axes.facecolor": "#FCFCFC",
    "savefig.facecolor": "auto",
    "figure.constrained_layout.use": True,
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.labelsize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "axes.prop_cycle": cycler(color=list(PALETTE.values())),
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "lines.linewidth": 1.8,
    "lines.markersize": 4,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "image.cmap": SEQUENTIAL,
    "image.interpolation": "nearest",
    "mathtext.fontset": "dejavusans",
    "svg.hashsalt": "gkalib",
}


def use() -> None:
    """Set the book's figure style; in a notebook, also store small pictures with digests.

    Every chapter calls it in its set-up cell.
    """
    mpl.rcParams.update(_RC)
    try:
        from IPython import get_ipython
    except ModuleNotFoundError:  # a plain script
        return
    shell = get_ipython()
    if shell is not None:
        register(shell)


def register(shell) -> None:
    """Make `shell` show every matplotlib figure as a small PNG beside its digest."""
    if getattr(shell, "kernel", None) is not None:
        # Loading the backend now keeps it from replacing our PNG formatter at the first figure.
        import matplotlib.pyplot as plt

        plt.switch_backend("module://matplotlib_inline.backend_inline")
        mpl.rcParams.update(_RC)
    formatter = shell.display_formatter
    formatter.formatters["image/png"].for_type(Figure, png)
    formatter.mimebundle_formatter.for_type(Figure, _bundle)
    shell.events.register("pre_run_cell", _remember)  # once, however often it is asked


def _remember(info) -> None:
    # IPython looks for a closing semicolon in the history, where a cell run without history (as nbval runs
    # all of them) is not: such a cell would show what its author silenced.
    if not info.store_history:
        from IPython import get_ipython

        get_ipython().history_manager.input_hist_parsed.append(info.raw_cell)


def _bundle(figure: Figure, include=None, exclude=None) -> dict:
    return {MIME: digest(figure)}


def png(figure: Figure, *, colors: int = 256, dpi: int | None = None) -> bytes:
    """Draw a figure as a PNG of at most `colors` colors, about a third of the usual size."""
    from PIL import Image

    raw = io.BytesIO()
    figure.savefig(raw, format="png", dpi="figure" if dpi is None else dpi)
    picture = Image.open(raw).convert("RGB")
    small = io.BytesIO()
    picture.quantize(colors, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(
        small, format="PNG", optimize=True
    )
    return small.getvalue()
