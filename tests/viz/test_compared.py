"""Many arms beside one: what is drawn of verdicts, costs and rates, and that names keep clear."""

import numpy as np
import pytest

from gkalib.results.verdicts import Estimate, Judgment
from gkalib.viz import compared, style


def judged(verdict: str, low: float, value: float, high: float) -> Judgment:
    found = Estimate(value=value, error=0.01, degrees=16)
    return Judgment(verdict=verdict, estimate=found, low=low, high=high)


FOUND = {
    "a": judged("as good as", -0.005, 0.0, 0.005),
    "b": judged("not", -0.4, -0.3, -0.2),
    "c": judged("undecided", -0.01, 0.01, 0.03),
}


def rows(axes) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


def test_an_interval_has_its_row_its_ends_and_the_mark_of_its_verdict(axes):
    compared.intervals(axes, FOUND, delta=0.01, factor=100)
    assert rows(axes) == ["c", "a", "b"]
    band, lines = axes.patches[0], axes.lines[1:]  # the first is the one at zero
    assert (band.get_x(), band.get_x() + band.get_width()) == (-1, 1)
    for place, arm in enumerate(rows(axes)):
        one = FOUND[arm]
        bar, dot = _of(lines, place)
        np.testing.assert_allclose(bar.get_xdata(), [100 * one.low, 100 * one.high])
        assert dot.get_xdata()[0] == pytest.approx(100 * one.estimate.value)
        marker, color, filled = compared.MARKS[one.verdict]
        assert (dot.get_marker(), dot.get_color()) == (marker, style.PALETTE[color])
        assert (dot.get_fillstyle() == "full") is filled


def _of(lines, place):
    return [line for line in lines if line.get_ydata()[0] == place]


def test_an_arm_without_a_judgment_has_an_empty_row_and_one_outside_stands_at_the_edge(axes):
    compared.intervals(axes, FOUND, delta=0.01, order=["d", "b", "a", "c"], limits=(-0.1, 0.1))
    assert rows(axes) == ["d", "b", "a", "c"] and axes.get_xlim() == (-0.1, 0.1)
    assert _of(axes.lines[1:], 0) == []
    (arrow,) = _of(axes.lines[1:], 1)
    assert arrow.get_marker() == "<" and arrow.get_xdata()[0] == -0.1
    assert [text.get_text() for text in axes.texts] == ["−0.3"]
    assert axes.yaxis_inverted()


def test_an_order_must_have_every_arm_that_was_judged(axes):
    with pytest.raises(ValueError, match="no row for b, c"):
        compared.intervals(axes, FOUND, delta=0.01, order=["a"])


def test_the_front_are_the_arms_that_no_other_beats():
    cost = {"slow": 3.0, "cheap": 1.0, "worse": 2.0, "good": 2.0, "tie": 2.0}
    outcome = {"slow": 0.8, "cheap": 0.5, "worse": 0.4, "good": 0.9, "tie": 0.9}
    assert compared.front(cost, outcome, larger=True) == ["cheap", "good"]
    losses = {arm: -value for arm, value in outcome.items()}
    assert compared.front(cost, losses, larger=False) == ["cheap", "good"]
    assert compared.front(cost, losses, larger=True) == ["cheap", "worse"]


def test_every_arm_is_a_named_dot_and_the_front_is_filled(axes):
    cost, outcome = {"a": 1.0, "b": 2.0, "c": 3.0}, {"a": 0.5, "b": 0.4, "c": 0.9}
    axes.set(xlim=(0, 4), ylim=(0, 1))
    assert compared.trade(axes, cost, outcome, larger=True) == ["a", "c"]
    dots = {line.get_xdata()[0]: line.get_fillstyle() for line in axes.lines if line.get_marker() == "o"}
    assert dots == {1.0: "full", 2.0: "none", 3.0: "full"}
    assert [text.get_text() for text in axes.texts] == ["a", "b", "c"]


def test_names_of_neighbors_do_not_cover_one_another(axes):
    cost = {f"arm-{i}": 1 + 0.01 * i for i in range(5)}
    axes.set(xlim=(0, 2), ylim=(0, 1))
    compared.trade(axes, cost, dict.fromkeys(cost, 0.5), larger=True)
    axes.figure.canvas.draw()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert not any(
        min(one.x1, other.x1) - max(one.x0, other.x0) > 2
        and min(one.y1, other.y1) - max(one.y0, other.y0) > 2
        for place, one in enumerate(boxes)
        for other in boxes[:place]
    )


def test_a_rate_costs_what_its_loss_is_above_the_lowest(axes):
    tried = {"a": {0.001: 0.9, 0.002: 0.5}, "b": {0.002: 0.7, 0.004: 3.0}}
    image = compared.rates(axes, tried, {"a": 0.001, "b": 0.002}, worst=1.0)
    shown = np.ma.filled(image.get_array(), np.nan)
    np.testing.assert_allclose(shown, [[0.4, 0.0, np.nan], [np.nan, 0.0, 1.0]])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0.001", "0.002", "0.004"]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines] == [(0, 0), (1, 1)]
