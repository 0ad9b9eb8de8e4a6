"""Errors of the recurrence of cosines."""

import numpy as np

from chapters.figures.bias_and_rows import errors


def test_near_zero_the_recurrence_loses_digits_and_the_direct_way_does_not():
    """An error of cos S grows by up to g² where the slope of the Chebyshev polynomial is."""
    ours, direct = errors(np.linspace(0.01, 0.05, 1001))
    assert ours[-1] > 8 * direct[-1]
