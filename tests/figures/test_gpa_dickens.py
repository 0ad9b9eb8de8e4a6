"""Banks of runs lie over the lags of their bins, on shared axes."""

import numpy as np
import pytest

from chapters.figures.gpa_dickens import banks


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
