"""The picture of a process shows the kernel, the sum of its waves, and draws with its covariances."""

import numpy as np
import pytest

from chapters.figures.kernels import draws, table
from gkalib.kernels import Laplace


def test_the_panels_show_kernel_spectrum_and_draws():
    figure = draws(Laplace(5.0), np.eye(8), lags=12)
    left, middle, right = figure.axes
    q = np.exp(-1 / 5)
    np.testing.assert_allclose(left.lines[0].get_ydata(), q ** np.arange(13))
    f, S = middle.lines[0].get_data()
    np.testing.assert_allclose(S, (1 - q**2) / (1 - 2 * q * np.cos(2 * np.pi * f) + q**2), rtol=1e-9)
    # From unit noise the draws are the columns of L, each drawn 6 below the one before.
    L = np.stack([line.get_ydata() for line in right.lines], axis=1) + 6 * np.arange(8)
    gap = np.abs(np.subtract.outer(np.arange(8), np.arange(8)))
    np.testing.assert_allclose(L @ L.T, q**gap, atol=1e-12)


def test_noise_for_draws_is_a_matrix():
    with pytest.raises(ValueError, match=r"shape \[8\]; it must be \[n draws\]"):
        draws(Laplace(5.0), np.ones(8))


def test_a_row_of_the_table_shades_where_the_spectrum_is_negative_and_says_where_no_function_exists():
    lags, frequencies, times = np.arange(3.0), np.arange(4.0), np.arange(5.0)
    rows = [
        ("one", "everywhere", lags, frequencies, 2 * times),
        ("other", "nowhere", lags, frequencies - 1.5, None),
    ]
    figure = table(rows, lags=lags, frequencies=frequencies, times=times)
    _, good, path, _, bad, none = figure.axes
    np.testing.assert_array_equal(path.lines[0].get_ydata(), 2 * times)
    assert [axes.get_title(loc="right") for axes in (path, none)] == ["everywhere", "nowhere"]
    assert [text.get_text() for text in none.texts] == ["none exists"] and not none.lines
    lowest = [
        min((p.vertices[:, 1].min() for p in axes.collections[0].get_paths()), default=0)
        for axes in (good, bad)
    ]
    assert lowest == [0, -1.5]
