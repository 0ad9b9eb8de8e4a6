"""Bars on one scale, and outcomes against measures."""

from chapters.figures import karat_cifar as figures
from gkalib.viz import style


def test_bars_have_one_scale_and_go_down_in_order():
    figure = figures.bars({"GB": {"long": 20.0, "short": 0.25}}, limits=(0.1, 100))
    (axes,) = figure.axes
    assert axes.get_xscale() == "log" and axes.get_xlim() == (0.1, 100) and axes.yaxis_inverted()
    assert [name.get_text() for name in axes.get_yticklabels()] == ["long", "short"]


def test_an_arm_has_its_mark_and_its_color_in_every_panel():
    measures = {"time": {"a": [1.0, 2.0], "b": [5.0, 9.0]}, "size": {"a": [10.0, 20.0], "b": [30.0, 40.0]}}
    marks = {"b": ("second", "s", "orange"), "a": ("first", "o", "blue")}
    figure = figures.outcomes(measures, {"a": [0.1, 0.2], "b": [0.3, 0.4]}, marks)
    for axes in figure.axes:
        assert axes.get_xscale() == "log" and axes.get_ylim() == figure.axes[0].get_ylim()
        drawn = [(line.get_marker(), line.get_color(), line.get_linestyle()) for line in axes.lines]
        assert drawn == [(mark, style.PALETTE[shade], "None") for _, mark, shade in marks.values()]
    (legend,) = figure.legends  # one for all panels
    assert [text.get_text() for text in legend.get_texts()] == ["second", "first"]


def test_one_measure_has_one_panel():
    assert len(figures.outcomes({"time": {"a": [1.0]}}, {"a": [0.1]}, {"a": ("a", "o", "blue")}).axes) == 1
