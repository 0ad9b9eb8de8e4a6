"""The stretch of the table under a tile, one lag for each column, errors of the recurrence of cosines."""

import numpy as np
import pytest

from chapters.figures.bias_and_rows import ROUNDING, errors, neighbors, recurrence, tile, tiles, turned


@pytest.mark.parametrize(("down", "across"), [(0, 0), (1, 0), (0, 2), (2, 1)])
def test_the_frame_of_the_table_holds_the_lags_of_the_tile(down, across):
    above, below = tile(down, across).axes
    shown = {int(text.get_text()) for text in above.texts}
    (frame,) = below.patches
    lowest, highest = frame.get_x() + 0.5, frame.get_x() + frame.get_width() - 0.5
    assert (lowest, highest) == (min(shown), max(shown))
    assert len(shown) == 7


def test_a_tile_outside_is_refused():
    with pytest.raises(ValueError, match="no tile of 4 at 3, 0"):
        tile(3, 0)


def test_turned_rows_are_read_backwards():
    rows = np.arange(16).reshape(4, 4)
    assert turned(rows).tolist() == [[0, 3, 2, 1], [5, 4, 7, 6], [10, 9, 8, 11], [15, 14, 13, 12]]


def test_each_column_of_the_joined_tile_holds_one_lag():
    joined = np.array([int(text.get_text()) for text in neighbors().axes[-1].texts]).reshape(4, 4)
    assert (joined == np.arange(4)).all()


def test_a_staircase_divides_the_two_lags_of_a_column():
    for axes in neighbors().axes[2:4]:
        lags = np.array([int(text.get_text()) for text in axes.texts]).reshape(4, 4)
        (stair,) = axes.lines
        for column in (1, 2, 3):
            height = stair.get_ydata()[np.flatnonzero(stair.get_xdata() == column + 0.5)[0]]
            above = np.arange(4) < height
            assert set(lags[~above, column] - lags[above, column][0]) == {4}


def test_the_control_shows_every_tile():
    shown = tiles()
    assert len(shown.frames) == 9 and shown.start == {"down": 1, "across": 0}
    assert shown.draw is tile and {len(places) for places in shown.values.values()} == {3}


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
