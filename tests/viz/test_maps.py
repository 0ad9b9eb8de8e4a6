"""Maps over pictures: what their figures carry."""

import numpy as np
import pytest
import torch

from gkalib.viz import maps

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
