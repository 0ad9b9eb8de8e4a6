"""Dots are the times of a floor, a program at its floor has the share one, a step takes its bytes' time."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from gkalib.bench import charts
from gkalib.bench.roofline import STATED, Floor

H100 = STATED["H100"]


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def test_dots_are_microseconds_and_the_largest_is_filled():
    shapes = {"one": Floor(3e-6, 2e-6, 1e-6, 0.0), "two": Floor(1e-6, 2e-6, 5e-6, 0.0)}
    (axes,) = charts.floors(shapes).axes
    dots = [line for line in axes.lines if line.get_marker() == "o"]
    np.testing.assert_allclose([dot.get_xdata()[0] for dot in dots], [3, 2, 1, 1, 2, 5])
    assert [dot.get_fillstyle() == "full" for dot in dots] == [True, False, False, False, False, True]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["one", "two"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == list(charts.PARTS)


def test_a_program_at_its_floor_has_the_share_one():
    """By products where the text is long; at 128 tokens bytes take 295/64 times as long as products."""
    peak = round(H100.products / 1e12)
    (axes,) = charts.shares({("cuDNN", 128): (peak, peak)}, (128, 4096), H100).axes
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [H100.products / H100.memory / 64, 1.0], rtol=1e-3)
    with pytest.raises(ValueError, match="cuDNN has 1 rates for 2 lengths"):
        charts.shares({("cuDNN", 128): (400,)}, (128, 4096), H100)


def test_a_step_takes_the_time_of_weights_and_caches_that_fit():
    tokens, mib = np.array([1.0, 10.0, 100.0]), 2.0**20
    kept = {"all": (tokens * mib, "blue", "-"), "state": (3 * mib + 0 * tokens, "green", "--")}
    figure = charts.steps(tokens, kept, {"one": (1e9, 1e7, ":")}, H100, room=8e9)
    left, right = figure.axes
    np.testing.assert_allclose([line.get_ydata() for line in left.lines], [tokens, [3, 3, 3]])
    assert [line.get_linestyle() for line in left.lines] == ["-", "--"]
    single, many = (line.get_ydata() for line in right.lines)
    np.testing.assert_allclose(single, (1e9 + 1e7 * tokens) / 3.35e9)
    np.testing.assert_allclose(many, [1.64e9 / 3.35e9, 7.4e9 / 3.35e9, np.nan])
    assert [line.get_label() for line in right.lines] == ["one, batch 1", "one, batch 64"]
