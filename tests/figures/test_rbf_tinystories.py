"""What positions add to scores has a color for each pair and a line for each kind."""

import numpy as np

from chapters.figures.rbf_tinystories import position_terms
from gkalib.viz import style


def test_what_positions_add_has_a_color_for_each_pair_and_a_line_for_each_kind():
    terms = {"penalty": [0.0, 1.0, 0.5], "cross": [0.0, 2.0, 1.0]}
    added = {"waves": np.array([[0.0, 1.0], [2.0, 3.0]]), "turns": np.array([[4.0, 4.0], [5.0, 5.0]])}
    left, right = position_terms(terms, added, bound=4).axes
    assert [line.get_linestyle() for line in left.lines[:2]] == ["-", "--"] and left.get_ylim()[1] > 4
    drawn = [line for line in right.lines if len(line.get_xdata())]
    colors = [style.PALETTE["blue"], style.PALETTE["vermilion"]]
    assert [line.get_color() for line in drawn] == 2 * colors
    assert [line.get_linestyle() for line in drawn] == ["-", "-", ":", ":"]
    named = dict(zip(*reversed(right.get_legend_handles_labels()), strict=True))
    assert {name: line.get_linestyle() for name, line in named.items()} == {"waves": "-", "turns": ":"}
    assert not {line.get_color() for line in named.values()} & {*colors}
