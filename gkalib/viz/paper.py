"""Which of a run's figures are a paper's, and their numbers there; GPA's histogram of lines and its heads."""

from collections.abc import Mapping

from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor

from gkalib.viz import style

# By paper and by our name of a figure: the paper's number of the first, and how many it has for a layer.
NUMBERS: dict[str, dict[str, tuple[int, int]]] = {
    "gka": {
        "rollout": (3, 0),
        "bandwidths": (4, 0),
        "class-layer": (5, 1),
        "patches-layer": (17, 1),
        "evolution": (29, 0),
        "matrices-layer": (32, 3),
    },
    "gpa": {"banks": (4, 0), "gaps": (5, 0), "heads": (0, 0)},
    "rbf": {"matrices-layer": (0, 0)},
    "karat": {"histograms": (6, 0), "spectra": (7, 0), "landscape": (8, 0), "class-layer": (9, 0)},
}
"""Zero where the paper has no number, or the text alone makes the claim."""
WIDEST = 128  # characters between two newlines that are drawn


def of_paper(figures: Mapping[str, Figure], paper: str) -> dict[str, Figure]:
    """Those of a run's figures that a paper has, under its numbers: ``figure-05-class-layer0``.

    Args:
        figures: by name, as ``gkalib.viz.figures`` gives them.
        paper: one of ``NUMBERS``.
    """
    found = {}
    for name, figure in figures.items():
        kind = name.rstrip("0123456789")
        if kind not in NUMBERS[paper]:
            continue
        first, step = NUMBERS[paper][kind]
        number = first + step * int(name[len(kind) :] or 0)
        found[f"figure-{number:02d}-{name}" if first else name] = figure
    return found


def gap_figure(text: Int[Tensor, " l"], written: Int[Tensor, " m"]) -> Figure:
    """How far a newline is from the next, in held-out text and in what a model wrote, as shares.

    Args:
        text, written: ``gkalib.analysis.removal.line_gaps`` of either.

    References:
        Gaussian Process Attention with Kernel Modeling, figure 5 (b) and section 3.2. Taught in: chapter 27.
    """
    figure = Figure(figsize=(style.COLUMN, 2.8), layout="constrained")
    axes = figure.subplots()
    for gaps, name in ((text, "held-out text"), (written, "written by the model")):
        shown = gaps[gaps <= WIDEST].tolist()
        shares = [1 / max(1, len(shown))] * len(shown)
        axes.hist(shown, bins=range(1, WIDEST + 2), weights=shares, histtype="step", label=name)
    axes.set(xlabel="characters from a newline to the next", ylabel="share")
    axes.legend()
    return figure


def head_figure(gains: Mapping[str, Float[Tensor, "layers heads"]]) -> Figure:
    """What the loss gains without each head, and where there are banks without its bank, head by head.

    Args:
        gains: of ``gkalib.analysis.removal.removal_gains``.

    References:
        Gaussian Process Attention with Kernel Modeling, sections 3.1 and 4. Taught in: chapter 27.
    """
    figure = Figure(figsize=(style.COLUMN, 2.8), layout="constrained")
    axes = figure.subplots()
    for name, table in gains.items():
        axes.plot(table.flatten().tolist(), "o", label=f"without the {name}")
    layers, heads = next(iter(gains.values())).shape
    axes.axhline(0.0, color="gray", lw=0.8)
    axes.set_xticks(range(layers * heads), [f"{i}.{j}" for i in range(layers) for j in range(heads)])
    axes.set(xlabel="layer.head", ylabel="gain of the loss (nats)")
    axes.legend()
    return figure
