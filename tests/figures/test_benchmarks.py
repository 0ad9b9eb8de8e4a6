"""Dots are the times of a floor, and a program at its floor has the share one."""

import numpy as np
import pytest

from chapters.figures import benchmarks
from gkalib.bench.roofline import STATED, Floor

H100 = STATED["H100"]


def test_dots_are_microseconds_and_the_largest_is_filled():
    shapes = {"one": Floor(3e-6, 2e-6, 1e-6, 0.0), "two": Floor(1e-6, 2e-6, 5e-6, 0.0)}
    (axes,) = benchmarks.floors(shapes).axes
    dots = [line for line in axes.lines if line.get_marker() == "o"]
    np.testing.assert_allclose([dot.get_xdata()[0] for dot in dots], [3, 2, 1, 1, 2, 5])
    assert [dot.get_fillstyle() == "full" for dot in dots] == [True, False, False, False, False, True]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["one", "two"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == list(benchmarks.PARTS)


def test_a_program_at_its_floor_has_the_share_one():
    """By products where the text is long; at 128 tokens bytes take 295/64 times as long as products."""
    peak = round(H100.products / 1e12)
    (axes,) = benchmarks.shares({("cuDNN", 128): (peak, peak)}, (128, 4096), H100).axes
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [H100.products / H100.memory / 64, 1.0], rtol=1e-3)
    with pytest.raises(ValueError, match="cuDNN has 1 rates for 2 lengths"):
        benchmarks.shares({("cuDNN", 128): (400,)}, (128, 4096), H100)
