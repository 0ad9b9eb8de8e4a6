"""Bars are the times of a floor, a program at its floor has the share one, and goals stand where they are."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from gkalib.bench import charts, goals, predictions
from gkalib.bench.roofline import STATED, Floor

H100 = STATED["H100"]


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def test_bars_are_microseconds_and_the_longest_is_dark():
    shapes = {"one": Floor(3e-6, 2e-6, 1e-6, 0.0), "two": Floor(1e-6, 2e-6, 5e-6, 0.0)}
    (axes,) = charts.floors(shapes).axes
    bars = axes.patches[:6]
    np.testing.assert_allclose([bar.get_width() for bar in bars], [3, 2, 1, 1, 2, 5])
    assert [bar.get_alpha() == 1 for bar in bars] == [True, False, False, False, False, True]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["one", "two"]


def test_lines_run_from_the_prediction_to_the_best():
    rows = {(row["record"], row["metric"]): row for row in predictions.predictions()}
    some = [goal for goal in goals.GOALS if "sdpa" in goal.metric and not goal.at_most][:3]
    (axes,) = charts.predicted(some, rows).axes
    for place, goal in enumerate(some):
        line, dot, tick = axes.lines[3 * place : 3 * place + 3]
        row = rows[goal.record, goal.metric]
        assert list(line.get_xdata()) == [float(row["predicted"]), float(row["at_best"])]
        assert list(dot.get_xdata()) == [float(row["predicted"])] and list(tick.get_xdata()) == [goal.bound]
    with pytest.raises(ValueError, match=f"no prediction for {some[0].record}"):
        charts.predicted(some[:1], {})


def test_a_program_at_its_floor_has_the_share_one():
    """By products where the text is long; at 128 tokens bytes take 295/64 times as long as products."""
    peak = round(H100.products / 1e12)
    (axes,) = charts.shares({("cuDNN", 128): (peak, peak)}, (128, 4096), H100).axes
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [H100.products / H100.memory / 64, 1.0], rtol=1e-3)
    with pytest.raises(ValueError, match="cuDNN has 1 rates for 2 lengths"):
        charts.shares({("cuDNN", 128): (400,)}, (128, 4096), H100)
