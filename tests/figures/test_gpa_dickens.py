"""Banks of runs have shared axes, and what is marked is dotted."""

import numpy as np

from chapters.figures.gpa_dickens import banks


def test_banks_share_their_axes_have_labels_at_the_rim_and_dotted_marks():
    curves = {name: np.ones((2, 3)) * height for height, name in enumerate("abcd", start=1)}
    axes = banks(curves, columns=2, width=2, marks={"b": 7}).axes
    assert len({one.get_ylim() for one in axes}) == 1
    assert [(bool(one.get_xlabel()), bool(one.get_ylabel())) for one in axes] == [
        (False, True), (False, False), (True, True), (True, False),
    ]  # fmt: skip
    dotted = [[line.get_xdata()[0] for line in one.lines if line.get_linestyle() == ":"] for one in axes]
    assert dotted == [[], [7], [], []]
