"""Bars with their values, and outcomes against measures."""

import pytest

from chapters.figures import karat_cifar as figures
from gkalib.viz import style


def test_bars_have_their_values_written_and_one_scale():
    costs = {"GB": {"long": 20.0, "short": 0.25}, "seconds": {"long": 3.0, "short": 1.5}}
    figure = figures.bars(costs, limits=(0.1, 100))
    for axes, (label, values) in zip(figure.axes, costs.items(), strict=True):
        assert [bar.get_width() for bar in axes.patches] == list(values.values())
        assert [text.get_text() for text in axes.texts] == [f"{value:.2g}" for value in values.values()]
        assert axes.get_xlabel() == label and axes.get_xscale() == "log" and axes.get_xlim() == (0.1, 100)
        assert axes.yaxis_inverted()
    assert [name.get_text() for name in figure.axes[0].get_yticklabels()] == ["long", "short"]


def test_bars_of_different_arms_are_refused():
    with pytest.raises(ValueError, match=r"^bars: each cost needs the arms a, b, in this order"):
        figures.bars({"GB": {"a": 1, "b": 2}, "seconds": {"b": 2, "a": 1}}, limits=(0.1, 10))


def test_an_outcome_is_drawn_against_each_measure_a_mark_for_each_run():
    measures = {"time": {"a": [1.0, 2.0], "b": [5.0, 9.0]}, "size": {"a": [10.0, 20.0], "b": [30.0, 40.0]}}
    outcome = {"a": [0.1, 0.2], "b": [0.3, 0.4]}
    marks = {"b": ("second", "s", "orange"), "a": ("first", "o", "blue")}
    figure = figures.outcomes(measures, outcome, marks)
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
    assert len(figures.outcomes({"time": {"a": [1.0]}}, {"a": [0.1]}, {"a": ("a", "o", "blue")}).axes) == 1
