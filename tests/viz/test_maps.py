"""Maps over pictures, bandwidths and banks: what their figures carry."""

import math

import numpy as np
import pytest
import torch

from gkalib.kernels import DecayingPeriodicBank
from gkalib.viz import maps
from gkalib.viz.figures import bandwidth_figure, bank_figure

PICTURE = np.linspace(0, 1, 8 * 12).reshape(8, 12)


def test_the_diagonal_is_set_to_zero_and_nothing_else():
    matrix = torch.rand(2, 4, 4) + 1
    found = maps.off_diagonal(matrix)
    assert (np.diagonal(found, axis1=1, axis2=2) == 0).all()
    np.testing.assert_allclose(found + np.eye(4) * matrix.numpy(), matrix.numpy())
    with pytest.raises(ValueError, match="as many keys as queries"):
        maps.off_diagonal(np.ones((3, 4)))


def test_a_map_covers_its_picture(axes):
    image = maps.overlay(axes, PICTURE, torch.rand(2, 3), query=(1, 2), title="map")
    assert image.get_cmap().name == "inferno" and image.get_alpha() == 0.6
    assert [one.get_extent() for one in axes.images] == [[-0.5, 11.5, 7.5, -0.5]] * 2
    (frame,) = axes.patches
    assert frame.get_xy() == (7.5, 3.5) and (frame.get_width(), frame.get_height()) == (4, 4)
    assert image.get_clim()[0] == 0.0
    whole = maps.overlay(axes, np.full((8, 8, 3), 255, np.uint8), np.ones((2, 2)))
    assert axes.images[-2].get_array().max() == 1.0 and whole.get_array().shape == (2, 2)


def test_a_map_of_other_shape_is_refused(axes):
    with pytest.raises(ValueError, match=r"maps.overlay: a map has two axes"):
        maps.overlay(axes, PICTURE, np.ones(4))
    with pytest.raises(ValueError, match=r"maps.overlay: a picture is"):
        maps.overlay(axes, np.ones((3, 8, 8)), np.ones((2, 2)))


def test_bandwidths_are_drawn_heads_down_and_layers_across():
    sigma = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    heat, lines, _ = bandwidth_figure(sigma).axes
    (image,) = heat.images
    np.testing.assert_array_equal(image.get_array(), [[1, 3, 5], [2, 4, 6]])
    assert image.get_cmap().name == "YlOrRd" and heat.get_xlabel() == "layer"
    assert [line.get_ydata().tolist() for line in lines.lines] == [[1, 3, 5], [2, 4, 6]]


def test_a_bank_is_drawn_by_its_formula():
    kernel = DecayingPeriodicBank(2, 1, alpha=0.7, sigma=1.5, length=9.0, tau=(3.0, 3.0))
    (axes,) = bank_figure([kernel], 5).axes
    expected = [
        1.5**2 * math.exp(-lag / 9) * math.exp(-2 * 0.7**2 * math.sin(lag / 3) ** 2) for lag in range(5)
    ]
    assert len(axes.lines) == 2
    for line in axes.lines:
        np.testing.assert_allclose(line.get_ydata(), expected, rtol=1e-5)
