"""Rows of dots: their order, their colors, and what is marked."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from gkalib.viz import dots, style


def test_rows_go_down_in_the_order_of_the_groups():
    _, axes = plt.subplots()
    values = {"c": [1.0], "a": [2.0, 3.0], "b": [4.0]}
    rows = dots.grouped(
        axes,
        values,
        {"first": ("blue", ["a", "b"]), "second": ("orange", ["c"])},
        ticks={"a": 0.5, "b": 0.6, "c": 0.7},
        hollow={"b"},
        name_groups=True,
    )
    assert list(rows) == ["a", "b", "c"] == [label.get_text() for label in axes.get_yticklabels()]
    assert rows["a"] - rows["b"] == 1 and rows["b"] - rows["c"] == 1 + dots.GAP
    drawn, ticks = axes.lines[::2], axes.lines[1::2]
    assert [list(line.get_xdata()) for line in drawn] == [values[arm] for arm in rows]
    colors = [style.PALETTE[name] for name in ("blue", "blue", "orange")]
    assert [line.get_color() for line in drawn] == colors
    assert [line.get_fillstyle() for line in drawn] == ["full", "none", "full"]
    assert [line.get_xdata()[0] for line in ticks] == [0.5, 0.6, 0.7]
    assert [text.get_text() for text in axes.texts] == ["first", "second"]
    np.testing.assert_allclose(np.mean(drawn[0].get_ydata()), rows["a"])


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


def test_an_outcome_is_drawn_against_each_measure_a_mark_for_each_run():
    measures = {"time": {"a": [1.0, 2.0], "b": [5.0, 9.0]}, "size": {"a": [10.0, 20.0], "b": [30.0, 40.0]}}
    outcome = {"a": [0.1, 0.2], "b": [0.3, 0.4]}
    marks = {"b": ("second", "s", "orange"), "a": ("first", "o", "blue")}
    figure = dots.outcomes(measures, outcome, marks)
    for axes, (label, values) in zip(figure.axes, measures.items(), strict=True):
        assert axes.get_xlabel() == label and axes.get_xscale() == "log"
        for line, (arm, (_, mark, shade)) in zip(axes.lines, marks.items(), strict=True):
            assert (list(line.get_xdata()), list(line.get_ydata())) == (values[arm], outcome[arm])
            assert (line.get_marker(), line.get_color()) == (mark, style.PALETTE[shade])
            assert line.get_linestyle() == "None"
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()
    (legend,) = figure.legends  # one for all panels
    assert [text.get_text() for text in legend.get_texts()] == ["second", "first"]


def test_one_measure_has_one_panel():
    assert len(dots.outcomes({"time": {"a": [1.0]}}, {"a": [0.1]}, {"a": ("a", "o", "blue")}).axes) == 1
