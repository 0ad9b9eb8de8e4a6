"""Of the dots of a floor the longest is filled, and a program at its floor has the share one."""

import numpy as np

from chapters.figures import benchmarks
from gkalib.bench.roofline import STATED, Floor


def test_the_largest_dot_is_filled():
    shapes = {"one": Floor(3e-6, 2e-6, 1e-6, 0.0), "two": Floor(1e-6, 2e-6, 5e-6, 0.0)}
    (axes,) = benchmarks.floors(shapes).axes
    dots = [line for line in axes.lines if line.get_marker() == "o"]
    assert [dot.get_fillstyle() == "full" for dot in dots] == [True, False, False, False, False, True]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["one", "two"]


def test_a_program_at_its_floor_has_the_share_one():
    """By products where the text is long; at 128 tokens bytes take 295/64 times as long as products."""
    rates = STATED["H100"]
    peak = round(rates.products / 1e12)
    (axes,) = benchmarks.shares({("cuDNN", 128): (peak, peak)}, (128, 4096), rates).axes
    np.testing.assert_allclose(
        axes.lines[0].get_ydata(), [rates.products / rates.memory / 64, 1.0], rtol=1e-3
    )
