"""Draws the front page's comparison: ``python book/img/compared.py`` writes ``compared.png`` beside itself.

Each variant's difference from softmax attention, with the interval and the verdict of chapter 32.
"""

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from chapters.figures.one_budget import intervals
from gkalib.results.claims import claims
from gkalib.viz import style
from gkalib.viz.digest import save


def draw() -> Figure:
    """The figure, from the recorded runs."""
    style.use()
    judged = {
        kind: {
            next(iter(one.weights)): found
            for one, seeds, found in claims(f"one-budget-{kind}").judged
            if seeds > 1
        }
        for kind in ("images", "text")
    }
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 4.4))
    intervals(left, judged["images"], delta=0.01, factor=100, limits=(-22, 10))
    intervals(right, judged["text"], delta=0.02, limits=(-0.12, 0.26))
    left.set(title="Images: right of zero is better", xlabel="accuracy minus softmax (points)")
    right.set(title="Text: left of zero is better", xlabel="loss minus softmax (nats)")
    return figure


if __name__ == "__main__":
    save(draw(), Path(__file__).with_suffix(".png"))
