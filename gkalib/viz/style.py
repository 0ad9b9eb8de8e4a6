"""The look of every figure in the book, and the picture and digest a notebook stores for it."""

import io
from typing import Any

import matplotlib as mpl
from cycler import cycler
from matplotlib.figure import Figure
from matplotlib.text import Text

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
# Of a picture a phone shows 342 px. Panels side by side are cut apart there (book/_static/book.js); any other
# figure is drawn so that type of TYPE points, the least that it has, stands there in 9 px.
PANEL, TYPE = 5.2, 10
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


def _fit(figure: Figure) -> None:
    # Panels in one column, or one panel with its color bar, which has no place in a grid.
    specs = [spec.get_topmost_subplotspec() for axes in figure.axes if (spec := axes.get_subplotspec())]
    if not specs or any(spec.get_gridspec().ncols > 1 for spec in specs):
        return
    figure.set_figwidth(min(figure.get_figwidth(), PANEL))
    for text in figure.findobj(Text):
        text.set_fontsize(max(text.get_fontsize(), TYPE))


def png(figure: Figure, *, colors: int = 256, dpi: int | None = None) -> bytes:
    """Draw a figure as a PNG of at most `colors` colors, about a third of the usual size.

    A figure without panels side by side becomes `PANEL` inches wide at most, its type `TYPE` points at least.
    """
    from PIL import Image

    _fit(figure)
    raw = io.BytesIO()
    figure.savefig(raw, format="png", dpi="figure" if dpi is None else dpi)
    picture = Image.open(raw).convert("RGB")
    small = io.BytesIO()
    picture.quantize(colors, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(
        small, format="PNG", optimize=True
    )
    return small.getvalue()
