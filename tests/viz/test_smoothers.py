"""What was removed is the difference, and eigenvectors are drawn with the largest entry 1 and one sign."""

import numpy as np
import pytest

from gkalib.viz.smoothers import removed, spectra


def drawn(axes) -> np.ndarray:
    return np.asarray(axes.images[0].get_array())


def test_the_result_stands_beside_what_it_removed():
    noisy = np.arange(12.0).reshape(3, 4) / 12
    figure, right = removed(noisy, noisy / 2, title="29 dB", cmap="gray", vmin=0.1, vmax=0.9)
    assert [axes.get_title("left") for axes in figure.axes] == ["29 dB", "removed", ""]
    np.testing.assert_array_equal(drawn(figure.axes[0]), noisy / 2)
    np.testing.assert_array_equal(drawn(figure.axes[1]), noisy - noisy / 2)
    assert right is figure.axes[2] and not right.lines and figure.axes[0].images[0].get_clim() == (0.1, 0.9)


def test_spectra_have_squares_and_three_vectors_each():
    vectors = np.random.default_rng(0).normal(size=(6, 4))
    values = np.array([1.0, 0.5, 0.25, 0.1, 0.0, 0.0])
    figure = spectra({"one": (values, vectors), "other": (values / 2, -vectors)}, shape=(2, 3))
    left, *panels = figure.axes
    for line, exact in zip(left.lines, (values, values**2, values / 2, values**2 / 4), strict=True):
        np.testing.assert_array_equal(line.get_ydata(), exact)
    assert len(panels) == 6 and panels[0].get_title("left") == "λ = 0.500"
    for index, axes in enumerate(panels[:3], start=1):
        wave = vectors[:, index]
        largest = wave[np.abs(wave).argmax()]
        np.testing.assert_array_equal(drawn(axes), (wave / largest).reshape(2, 3))
        np.testing.assert_array_equal(drawn(panels[index + 2]), drawn(axes), "a sign says nothing")


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(ValueError, match=r"images are \[2, 2\] and \[3, 2\]"):
        removed(np.ones((2, 2)), np.ones((3, 2)), title="")
    with pytest.raises(ValueError, match="two matrices are compared, not 1"):
        spectra({"one": ([1.0], np.ones((1, 1)))}, shape=(1, 1))
