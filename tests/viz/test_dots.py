"""Rows of dots: their order, their colors, and what is marked."""

import numpy as np
import pytest

from gkalib.viz import dots, style


def rows(axes) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


def test_an_arm_has_a_dot_for_each_seed_and_a_tick_at_their_mean(axes):
    values = {"b": [1.0, 3.0], "a": [4.0, 5.0, 9.0]}
    dots.seeds(axes, values, {"a": "blue", "b": "orange"}, hollow={"a"})
    assert rows(axes) == ["b", "a"] and axes.yaxis_inverted()
    ticks, drawn = axes.lines[::2], axes.lines[1::2]
    assert [tick.get_xdata()[0] for tick in ticks] == [2.0, 6.0]
    assert [list(line.get_xdata()) for line in drawn] == list(values.values())
    assert [set(line.get_ydata()) for line in axes.lines] == [{0}, {0}, {1}, {1}]
    assert [line.get_color() for line in drawn] == [style.PALETTE["orange"], style.PALETTE["blue"]]
    assert [line.get_fillstyle() for line in drawn] == ["full", "none"]


def test_an_interval_takes_the_place_of_the_mean(axes):
    dots.seeds(axes, {"a": np.array([1.0, 2.0])}, {"a": "blue"}, spans={"a": (0.5, 2.5)})
    span, drawn = axes.lines
    assert list(span.get_xdata()) == [0.5, 2.5] and span.get_marker() == "None"
    assert list(drawn.get_xdata()) == [1.0, 2.0] and drawn.get_linestyle() == "None"


def test_kinds_have_marks_of_their_own_runs_are_pale_and_a_line_joins_the_means_of_two(axes):
    values = {
        "b": {"x": [0.1, 0.3], "y": [0.6, 0.8], "z": [0.5, 0.9]},
        "a": {"x": [0.2], "y": [0.4], "z": [0.3]},
    }
    dots.kinds(axes, values)
    assert rows(axes) == ["b", "a"] and axes.yaxis_inverted()
    np.testing.assert_allclose([line.get_xdata() for line in axes.lines[::7]], [[0.2, 0.7], [0.2, 0.4]])
    runs = [line for line in axes.lines if line.get_alpha() == dots.PALE]
    drawn = [line for line in axes.lines if line.get_marker() != "None" and line not in runs]
    of = [of for row in values.values() for of in row.values()]
    assert [list(line.get_xdata()) for line in runs] == of
    np.testing.assert_allclose([line.get_xdata()[0] for line in drawn], [np.mean(one) for one in of])
    assert all(run.get_markersize() < one.get_markersize() for run, one in zip(runs, drawn, strict=True))
    marks = [(line.get_marker(), line.get_color(), line.get_markersize()) for line in drawn]
    assert marks == 2 * [(mark, style.PALETTE[shade], size) for mark, shade, size in dots.MARKS]
    assert marks[0][2] > marks[1][2]  # or a dot would hide a tick
    assert axes.get_legend_handles_labels()[1] == ["x", "y", "z"]


def test_arms_of_other_kinds_and_kinds_without_a_mark_are_refused(axes):
    with pytest.raises(ValueError, match=r"^kinds: each arm needs the same kinds, at most 3"):
        dots.kinds(axes, {"a": {"x": [1.0]}, "b": {"y": [1.0]}})
    with pytest.raises(ValueError, match=r"^kinds: each arm needs the same kinds, at most 3"):
        dots.kinds(axes, {"a": {kind: [1.0] for kind in "wxyz"}})
