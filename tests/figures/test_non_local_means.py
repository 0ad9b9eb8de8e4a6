"""Frames show their pixels, what was removed is the difference, eigenvectors have the largest entry 1."""

import numpy as np
import pytest
import torch

from chapters.figures.non_local_means import framed, removed, spectra, weight_maps


def drawn(axes) -> np.ndarray:
    return np.asarray(axes.images[0].get_array())


def test_a_frame_shows_its_pixels():
    image = np.arange(42.0).reshape(6, 7)
    spots = {"1": (1, 5, "sky"), "2": (4, 1, "green")}
    figure = framed({"clean": image, "noisy": -image}, spots, radius=1, cmap="gray", vmin=-41.0, vmax=41.0)
    titles = [axes.get_title("left") for axes in figure.axes]
    assert titles == ["clean", "noisy", "frame 1", "frame 2"]
    _, noisy, first, second = figure.axes
    np.testing.assert_array_equal(drawn(first), -image[0:3, 4:7])
    np.testing.assert_array_equal(drawn(second), -image[3:6, 0:3])
    boxes = [(frame.get_xy(), frame.get_width(), frame.get_height()) for frame in noisy.patches]
    assert boxes == [((3.5, -0.5), 3, 3), ((-0.5, 2.5), 3, 3)], "around its pixels, half a pixel further"
    assert noisy.patches[1].get_edgecolor() == second.patches[0].get_edgecolor()
    assert [label.get_text() for label in noisy.texts] == ["1", "2"]
    assert second.images[0].get_clim() == (-41, 41)
    with pytest.raises(ValueError, match=r"frame 3 around \(0, 3\) leaves the 6 × 7 pixels"):
        framed({"clean": image}, {"3": (0, 3, "sky")}, radius=1)


def test_the_result_stands_beside_what_it_removed():
    noisy = np.arange(12.0).reshape(3, 4) / 12
    figure, right = removed(noisy, noisy / 2, title="29 dB", cmap="gray", vmin=0.1, vmax=0.9)
    assert [axes.get_title("left") for axes in figure.axes] == ["29 dB", "removed", ""]
    np.testing.assert_array_equal(drawn(figure.axes[0]), noisy / 2)
    np.testing.assert_array_equal(drawn(figure.axes[1]), noisy - noisy / 2)
    assert right is figure.axes[2] and not right.lines and figure.axes[0].images[0].get_clim() == (0.1, 0.9)


def test_maps_show_what_a_pixel_averages():
    side = torch.arange(13, dtype=torch.float64)
    place = torch.cartesian_prod(side, side)
    figure = weight_maps(
        np.zeros((13, 13)),
        {"wide": place / 4, "narrow": place},
        {"middle": (6, 5)},
        near={"narrow"},
    )
    image, wide, narrow = figure.axes[:3]
    exact = torch.exp(-(place - torch.tensor([6.0, 5.0])).square().sum(1) / 2).reshape(13, 13).numpy()
    np.testing.assert_allclose(drawn(narrow), (exact / exact.sum())[1:12, 0:11], rtol=1e-9)
    titles = [axes.get_title("left") for axes in (wide, narrow)]
    assert titles == ["wide\nwhole image", "narrow\n11 × 11 pixels"]
    assert drawn(wide).shape == (13, 13) and image.get_ylabel() == "middle"
    places = [axes.lines[0].get_xydata().tolist() for axes in (image, wide, narrow)]
    assert places == [[[5, 6]], [[5, 6]], [[5, 5]]]
    assert narrow.get_xlabel() == f"{exact.sum() ** 2 / (exact**2).sum():.0f} neighbors"
    np.testing.assert_allclose(narrow.images[0].get_clim(), (0, np.exp(-0.5) / exact.sum()), rtol=1e-9)
    with pytest.raises(ValueError, match="blur has 4 tokens for 9 pixels"):
        weight_maps(np.zeros((3, 3)), {"blur": torch.zeros(4, 2)}, {})
    with pytest.raises(ValueError, match="are not 11 × 11 pixels of 2 × 2"):
        weight_maps(np.zeros((2, 2)), {"blur": torch.zeros(4, 2)}, {"top": (0, 0)}, near={"blur"})


def test_spectra_have_squares_and_three_vectors_each():
    vectors = np.random.default_rng(0).normal(size=(6, 4))
    values = np.array([1.0, 0.5, 0.25, 0.1, 0.0, 0.0])
    figure = spectra({"one": (values, vectors), "other": (values / 2, -vectors)}, shape=(2, 3))
    left, *panels = figure.axes
    for line, exact in zip(left.lines, (values, values**2, values / 2, values**2 / 4), strict=True):
        np.testing.assert_array_equal(line.get_ydata(), exact)
    assert len(panels) == 6 and panels[0].get_title("left") == "λ = 0.500"
    assert [axes.get_ylabel() for axes in panels] == ["one", "", "", "other", "", ""]
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
