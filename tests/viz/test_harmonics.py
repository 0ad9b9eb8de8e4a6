"""The recurrence of cosines in float32, against exact cosines, and what the figure draws of it."""

import numpy as np
import pytest

from gkalib.viz.harmonics import ROUNDING, errors, recurrence


def test_both_ways_have_errors_of_float32():
    ours, direct = errors(np.linspace(-3, 3, 1001))
    assert ours.shape == direct.shape == (8,)
    assert 0 < direct.max() < 1e-5 and 0 < ours.max() < 1e-5 and ours[0] == direct[0]


def test_near_zero_the_recurrence_loses_digits_and_the_direct_way_does_not():
    """An error of cos S grows by up to g² where the slope of the Chebyshev polynomial is."""
    ours, direct = errors(np.linspace(0.01, 0.05, 1001))
    assert ours[-1] > 8 * direct[-1]


def test_every_error_drawn_is_below_that_of_bfloat16():
    figure = recurrence(np.random.default_rng(0), count=2000)
    (axes,) = figure.axes
    *pairs, line = axes.lines
    assert len(pairs) == 6 and set(line.get_ydata()) == {ROUNDING}
    assert max(np.max(one.get_ydata()) for one in pairs) < ROUNDING / 4
    expected = errors(np.random.default_rng(0).uniform(-np.pi, np.pi, 2000))
    for drawn, right in zip(pairs, expected, strict=False):
        np.testing.assert_array_equal(drawn.get_ydata(), right)


def test_scores_of_float32_are_refused():
    with pytest.raises(ValueError, match=r"\[n\] in float64, not \[3\] in float32"):
        errors(np.ones(3, np.float32))
