"""Pictures of lags show what they say: the stretch of the table under a tile, and one lag for each column."""

import numpy as np
import pytest

from gkalib.viz import style
from gkalib.viz.lags import banks, neighbors, position_terms, tile, tiles, turned


@pytest.mark.parametrize(("down", "across"), [(0, 0), (1, 0), (0, 2), (2, 1)])
def test_the_frame_of_the_table_holds_the_lags_of_the_tile(down, across):
    above, below = tile(down, across).axes
    shown = {int(text.get_text()) for text in above.texts}
    (frame,) = below.patches
    lowest, highest = frame.get_x() + 0.5, frame.get_x() + frame.get_width() - 0.5
    assert (lowest, highest) == (min(shown), max(shown))
    assert len(shown) == 7


def test_a_tile_outside_is_refused():
    with pytest.raises(ValueError, match="no tile of 4 at 3, 0"):
        tile(3, 0)


def test_turned_rows_are_read_backwards():
    rows = np.arange(16).reshape(4, 4)
    assert turned(rows).tolist() == [[0, 3, 2, 1], [5, 4, 7, 6], [10, 9, 8, 11], [15, 14, 13, 12]]


def test_each_column_of_the_joined_tile_holds_one_lag():
    joined = np.array([int(text.get_text()) for text in neighbors().axes[-1].texts]).reshape(4, 4)
    assert (joined == np.arange(4)).all()


def test_a_staircase_divides_the_two_lags_of_a_column():
    for axes in neighbors().axes[2:4]:
        lags = np.array([int(text.get_text()) for text in axes.texts]).reshape(4, 4)
        (stair,) = axes.lines
        for column in (1, 2, 3):
            height = stair.get_ydata()[np.flatnonzero(stair.get_xdata() == column + 0.5)[0]]
            above = np.arange(4) < height
            assert set(lags[~above, column] - lags[above, column][0]) == {4}


def test_the_control_shows_every_tile():
    shown = tiles()
    assert len(shown.frames) == 9 and shown.start == {"down": 1, "across": 0}
    assert shown.draw is tile and {len(places) for places in shown.values.values()} == {3}


def test_what_positions_add_has_a_color_for_each_pair_and_a_line_for_each_kind():
    terms = {"penalty": [0.0, 1.0, 0.5], "cross": [0.0, 2.0, 1.0]}
    added = {"waves": np.array([[0.0, 1.0], [2.0, 3.0]]), "turns": np.array([[4.0, 4.0], [5.0, 5.0]])}
    left, right = position_terms(terms, added, bound=4).axes
    *lines, bound = left.lines
    assert [list(line.get_ydata()) for line in lines] == list(terms.values())
    assert [line.get_linestyle() for line in lines] == ["-", "--"]
    assert set(bound.get_ydata()) == {4} and left.get_ylim()[1] > 4
    drawn = [line for line in right.lines if len(line.get_xdata())]
    assert [list(line.get_ydata()) for line in drawn] == [list(row) for of in added.values() for row in of]
    colors = [style.PALETTE["blue"], style.PALETTE["vermilion"]]
    assert [line.get_color() for line in drawn] == 2 * colors
    assert [line.get_linestyle() for line in drawn] == ["-", "-", ":", ":"]
    named = dict(zip(*reversed(right.get_legend_handles_labels()), strict=True))
    assert {name: line.get_linestyle() for name, line in named.items()} == {"waves": "-", "turns": ":"}
    assert not {line.get_color() for line in named.values()} & {*colors}


def test_banks_of_a_panel_are_curves_at_the_middles_of_their_bins_on_shared_axes():
    first = np.array([[3.0, 4.0], [1.0, 2.0], [0.5, 0.0]])
    panels = {"a": first, "b": [[1.0], [2.0], [9.0]], "c": np.ones((3, 1))}
    figure = banks(panels, columns=3, marks={"b": 7, "a": 5})
    assert [axes.get_title("left") for axes in figure.axes] == list(panels)
    for axes, (name, curves) in zip(figure.axes, panels.items(), strict=True):
        drawn = [line for line in axes.lines if line.get_linestyle() == "-"]
        np.testing.assert_array_equal([line.get_ydata() for line in drawn], np.transpose(curves))
        assert [list(line.get_xdata()) for line in drawn] == [[1.5, 5.5, 9.5]] * len(drawn)
        marked = [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == ":"]
        assert marked == {"a": [5], "b": [7]}.get(name, [])
        assert axes.get_xlabel() == "lag Δ (characters)"
    assert [bool(axes.get_ylabel()) for axes in figure.axes] == [True, False, False]
    assert len({axes.get_ylim() for axes in figure.axes}) == 1


def test_banks_in_two_rows_have_one_top_and_labels_at_the_rim():
    figure = banks({name: np.ones((2, 3)) for name in "abcd"}, columns=2, width=2, top=20)
    assert [axes.get_ylim() for axes in figure.axes] == [(0, 20)] * 4
    assert [bool(axes.get_xlabel()) for axes in figure.axes] == [False, False, True, True]
    assert list(figure.axes[0].lines[0].get_xdata()) == [0.5, 2.5]


def test_banks_need_full_rows():
    with pytest.raises(ValueError, match="3 panels do not fill rows of 2"):
        banks({name: np.ones((2, 1)) for name in "abc"}, columns=2)
