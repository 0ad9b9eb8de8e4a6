"""Frames and their cut-outs have one color, and pictures that are compared the same grays."""

import numpy as np
import torch

from chapters.figures.non_local_means import framed, removed, weight_maps


def test_a_frame_has_the_color_of_its_pixels():
    image = np.arange(42.0).reshape(6, 7)
    spots = {"1": (1, 5, "sky"), "2": (4, 1, "green")}
    figure = framed({"clean": image, "noisy": -image}, spots, radius=1, cmap="gray", vmin=-41.0, vmax=41.0)
    _, noisy, *cut = figure.axes
    for frame, axes in zip(noisy.patches, cut, strict=True):
        assert frame.get_edgecolor() == axes.patches[0].get_edgecolor()
        assert axes.images[0].get_clim() == (-41, 41)
    assert noisy.patches[0].get_edgecolor() != noisy.patches[1].get_edgecolor()


def test_a_result_has_the_grays_that_are_asked_for_and_a_map_begins_at_white():
    noisy = np.arange(12.0).reshape(3, 4) / 12
    figure, right = removed(noisy, noisy / 2, title="29 dB", cmap="gray", vmin=0.1, vmax=0.9)
    assert right is figure.axes[2] and figure.axes[0].images[0].get_clim() == (0.1, 0.9)
    place = torch.cartesian_prod(*[torch.arange(3, dtype=torch.float64)] * 2)
    _, narrow = weight_maps(np.zeros((3, 3)), {"one": place}, {"middle": (1, 1)}).axes[:2]
    exact = torch.exp(-(place - 1.0).square().sum(1) / 2)
    np.testing.assert_allclose(narrow.images[0].get_clim(), (0, np.exp(-0.5) / exact.sum()), rtol=1e-9)
