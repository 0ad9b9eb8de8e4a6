"""The picture of a process shows the kernel, the sum of its waves, and draws with its covariances."""

import numpy as np
import pytest

from chapters.figures.kernels import draws
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
