"""What is drawn of costs and rates, and that names keep clear."""

import math
from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np
import pytest

from chapters.experiments.one_budget import outcomes, step_costs
from chapters.figures import one_budget as figures
from gkalib.viz import style
from tests.judgments import FOUND, judged


def rows(axes) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


def test_the_front_are_the_arms_that_no_other_beats():
    cost = {"slow": 3.0, "cheap": 1.0, "worse": 2.0, "good": 2.0, "tie": 2.0}
    outcome = {"slow": 0.8, "cheap": 0.5, "worse": 0.4, "good": 0.9, "tie": 0.9}
    assert figures.front(cost, outcome, larger=True) == ["cheap", "good"]
    losses = {arm: -value for arm, value in outcome.items()}
    assert figures.front(cost, losses, larger=False) == ["cheap", "good"]
    assert figures.front(cost, losses, larger=True) == ["cheap", "worse"]


def test_every_arm_is_a_named_dot_and_the_front_is_filled(axes):
    cost, outcome = {"a": 1.0, "b": 2.0, "c": 3.0}, {"a": 0.5, "b": 0.4, "c": 0.9}
    axes.set(xlim=(0, 4), ylim=(0, 1))
    assert figures.trade(axes, cost, outcome, larger=True) == ["a", "c"]
    dots = {line.get_xdata()[0]: line.get_fillstyle() for line in axes.lines if line.get_marker() == "o"}
    assert dots == {1.0: "full", 2.0: "none", 3.0: "full"}
    assert [text.get_text() for text in axes.texts] == ["a", "b", "c"]


def test_the_arm_that_others_are_compared_with_is_a_diamond(axes):
    cost, outcome = {"a": 1.0, "b": 2.0}, {"a": 0.5, "b": 0.4}
    axes.set(xlim=(0, 4), ylim=(0, 1))
    figures.trade(axes, cost, outcome, larger=True, reference="b")
    markers = {line.get_xdata()[0]: line.get_marker() for line in axes.lines if len(line.get_xdata()) == 1}
    assert markers == {1.0: "o", 2.0: "D"}
    assert axes.texts[1].get_color() == style.PALETTE["vermilion"]


def covered(axes) -> list[tuple[str, str]]:
    """Which names cover one another, and which cover the dot of another arm."""
    axes.figure.canvas.draw()
    boxes = {text.get_text(): text.get_window_extent() for text in axes.texts}
    shrunk = {
        name: box.from_extents(box.x0 + 1, box.y0 + 1, box.x1 - 1, box.y1 - 1) for name, box in boxes.items()
    }
    found = [pair for pair in combinations(shrunk, 2) if shrunk[pair[0]].overlaps(shrunk[pair[1]])]
    dots = [
        axes.transData.transform(line.get_xydata()[0])
        for line in axes.lines
        if line.get_marker() in ("o", "D")
    ]
    return found + [(name, "a dot") for name, box in shrunk.items() for dot in dots if box.contains(*dot)]


def test_names_of_neighbors_do_not_cover_one_another(axes):
    cost = {f"arm-{i}": 1 + 0.01 * i for i in range(5)}
    axes.set(xlim=(0, 2), ylim=(0, 1))
    figures.trade(axes, cost, dict.fromkeys(cost, 0.5), larger=True)
    assert covered(axes) == []


@pytest.mark.parametrize("kind", ["images", "text"])
def test_names_of_the_comparison_at_one_budget_are_legible(kind):
    """On the records, at the size of the figures of chapter 32."""
    spent = step_costs(f"one-budget-{kind}")
    plain = spent["softmax"]
    operations = {arm: of["flops"] / plain["flops"] for arm, of in spent.items()}
    time = {arm: of["milliseconds"] / plain["milliseconds"] for arm, of in spent.items()}
    _, axes = plt.subplots(figsize=(5.2, 3.6))
    most = {"images": 1.6, "text": 6.5}[kind]
    axes.set(xlim=(0.65, most), ylim=(0.85, max(most, 3.4)), xscale="log", yscale="log")
    figures.trade(axes, operations, time, larger=False, reference="softmax")
    assert covered(axes) == []
    mean = {arm: float(np.mean([*of.values()])) for arm, of in outcomes(f"one-budget-{kind}").items()}
    low, high = min(mean.values()), max(mean.values())
    _, axes = plt.subplots(figsize=(5.2, 4.0))
    room = 0.08 * (high - low)
    milliseconds = {arm: of["milliseconds"] for arm, of in spent.items()}
    longest = 1.2 * max(milliseconds.values())
    axes.set(xscale="log", xlim=(21, longest), ylim=(low - room, high + room))
    figures.trade(axes, milliseconds, mean, larger=kind == "images", reference="softmax")
    assert covered(axes) == []


def test_a_name_that_stands_away_from_its_dot_is_joined_to_it(axes):
    axes.set(xlim=(0, 1), ylim=(0, 1))
    crowd = {f"a-long-name-{i}": (0.5 + 0.001 * i, 0.5) for i in range(10)}
    figures.write(axes, crowd, colors=dict.fromkeys(crowd, "black"))
    assert covered(axes) == [] and axes.lines
    ends = [line.get_xydata() for line in axes.lines]
    for start, _ in ends:
        assert min(np.hypot(*(np.array(point) - start)) for point in crowd.values()) < 1e-6


def test_a_rate_costs_what_its_loss_is_above_the_lowest(axes):
    """One without rates has a blank row, and a rate that broke a run is told from a bad one."""
    tried = {"a": {0.001: 0.9, 0.002: 0.5}, "b": {}, "c": {0.001: 0.7, 0.002: 3.0, 0.004: math.inf}}
    image = figures.rates(axes, tried, {"a": 0.001, "c": 0.001}, worst=1.0)
    shown = np.ma.filled(image.get_array(), np.nan)
    np.testing.assert_allclose(shown, [[0.4, 0.0, np.nan], [np.nan] * 3, [0.0, 1.0, np.nan]])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0.001", "0.002", "0.004"]
    assert rows(axes) == ["a", "b", "c"]
    marks = [(line.get_marker(), line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines]
    assert sorted(marks) == [("o", 0, 0), ("o", 0, 2), ("x", 2, 2)]
    (cell,) = axes.patches
    assert (cell.get_xy(), cell.get_width(), cell.get_height()) == ((1.5, 1.5), 1, 1)


def _of(lines, place):
    return [line for line in lines if line.get_ydata()[0] == place]


def test_an_interval_has_its_row_its_ends_and_the_mark_of_its_verdict(axes):
    figures.intervals(axes, FOUND, delta=0.01, factor=100)
    assert rows(axes) == ["c", "a", "b"]
    band, lines = axes.patches[0], axes.lines[1:]  # the first is the one at zero
    assert (band.get_x(), band.get_x() + band.get_width()) == (-1, 1)
    for place, arm in enumerate(rows(axes)):
        one = FOUND[arm]
        bar, dot = _of(lines, place)
        np.testing.assert_allclose(bar.get_xdata(), [100 * one.low, 100 * one.high])
        assert dot.get_xdata()[0] == pytest.approx(100 * one.estimate.value)
        marker, color, filled = figures.VERDICTS[one.verdict]
        assert (dot.get_marker(), dot.get_color()) == (marker, style.PALETTE[color])
        assert (dot.get_fillstyle() == "full") is filled


def test_an_arm_outside_the_limits_stands_at_the_edge(axes):
    figures.intervals(axes, FOUND, delta=0.01, limits=(-0.1, 0.1))
    assert axes.get_xlim() == (-0.1, 0.1)
    (arrow,) = _of(axes.lines[1:], 2)
    assert arrow.get_marker() == "<" and arrow.get_xdata()[0] == -0.1
    assert [text.get_text() for text in axes.texts] == ["−0.3"]
    assert axes.yaxis_inverted()


def test_of_an_interval_around_a_difference_outside_the_part_inside_is_drawn(axes):
    wide = {"a": judged("undecided", -0.4, -0.15, 0.05)}
    figures.intervals(axes, wide, delta=0.01, limits=(-0.1, 0.1))
    bar, arrow = _of(axes.lines[1:], 0)
    np.testing.assert_allclose(bar.get_xdata(), [-0.1, 0.05])
    assert (arrow.get_marker(), arrow.get_fillstyle()) == ("<", "none")
