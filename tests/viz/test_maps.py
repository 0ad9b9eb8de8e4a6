"""Maps over pictures, bandwidths and banks: what their figures carry."""

import math

import numpy as np
import pytest
import torch

from gkalib import gpt
from gkalib.kernels import DecayingPeriodicBank
from gkalib.models import GPTConfig
from gkalib.viz import bandwidth_lines, bandwidth_map, bank_lines, maps

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


def test_patches_are_blocks_from_zero_to_the_largest(axes):
    image = maps.patches(axes, torch.tensor([[0.5, 1.0], [2.0, 1.5]]), title="map")
    assert image.get_interpolation() == "nearest" and image.get_clim() == (0.0, 2.0)
    np.testing.assert_array_equal(image.get_array(), [[0.5, 1.0], [2.0, 1.5]])
    assert maps.patches(axes, torch.ones(2, 2), largest=4).get_clim() == (0.0, 4.0)
    with pytest.raises(ValueError, match=r"^maps.patches: a map has two axes"):
        maps.patches(axes, np.ones(4))


def test_maps_stand_beside_their_pictures_each_relative_to_its_largest():
    pictures, maps_of = torch.rand(2, 8, 8), {"one": torch.rand(2, 4), "none": torch.zeros(2, 4)}
    figure = maps.beside(pictures, maps_of, names=["first", "second"])
    panels = np.array(figure.axes[:-1]).reshape(2, 3)
    assert [axes.get_ylabel() for axes in panels[:, 0]] == ["first", "second"]
    assert [axes.get_title("left") for axes in panels[0]] == ["", "one", "none"]
    for row, (picture, map) in enumerate(zip(pictures, maps_of["one"], strict=True)):
        shown = [axes.images[0] for axes in panels[row]]
        np.testing.assert_allclose(shown[0].get_array(), picture)
        np.testing.assert_allclose(shown[1].get_array(), (map / map.max()).reshape(2, 2), rtol=1e-6)
        assert not shown[2].get_array().any()
        assert {one.get_clim() for one in shown[1:]} == {(0.0, 1.0)}
    assert figure.axes[-1].get_ylabel() == "relative to the map's largest"
    with pytest.raises(ValueError, match=r"^zip\(\) argument 2 is shorter"):
        maps.beside(pictures, {"one": torch.rand(1, 4)})
    with pytest.raises(ValueError, match=r"^patch_grid: 5 weights make no square"):
        maps.beside(pictures, {"one": torch.rand(2, 5)})


def test_a_map_of_other_shape_is_refused(axes):
    with pytest.raises(ValueError, match=r"maps.overlay: a map has two axes"):
        maps.overlay(axes, PICTURE, np.ones(4))
    with pytest.raises(ValueError, match=r"maps.overlay: a picture is"):
        maps.overlay(axes, np.ones((3, 8, 8)), np.ones((2, 2)))


def test_normalized_images_are_drawn_in_their_colors(axes):
    colors = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]], dtype=torch.float64)
    mean, deviation = colors[..., None, None]
    image = torch.rand(3, 4, 5, dtype=torch.float64)
    maps.images([axes], [(image - mean) / deviation])
    np.testing.assert_allclose(axes.images[0].get_array(), image.permute(1, 2, 0))
    assert not axes.get_xticks().size and not axes.spines["left"].get_visible()
    maps.images([axes], [torch.full((3, 2, 2), 9.0)])
    assert axes.images[-1].get_array().max() == 1.0
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        maps.images([axes], [])


def test_a_gallery_has_a_row_for_each_name_and_the_same_grays_everywhere():
    images = {"dark": [np.full((4, 4), 0.1)] * 3, "light": [torch.full((4, 4), 0.9)] * 3}
    figure = maps.gallery(images, ["first", "second", "third"])
    panels = np.array(figure.axes).reshape(2, 3)
    assert [axes.get_ylabel() for axes in panels[:, 0]] == ["dark", "light"]
    assert [axes.get_title("left") for axes in panels[0]] == ["first", "second", "third"]
    for line, row in zip(panels, images.values(), strict=True):
        for axes, image in zip(line, row, strict=True):
            np.testing.assert_allclose(axes.images[0].get_array(), image)
    assert {axes.images[0].get_clim() for axes in panels.flat} == {(0.0, 1.0)}
    for titles in (["first"], ["first", "second", "third", "fourth"]):
        with pytest.raises(ValueError, match=r"^zip\(\) argument 2 is (longer|shorter)"):
            maps.gallery(images, titles)


def test_bandwidths_are_drawn_heads_down_and_layers_across(axes):
    sigma = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    image = bandwidth_map(axes, sigma)
    np.testing.assert_array_equal(image.get_array(), [[1, 3, 5], [2, 4, 6]])
    assert image.get_cmap().name == "YlOrRd" and axes.get_xlabel() == "layer"
    bandwidth_lines(axes, sigma)
    assert [line.get_ydata().tolist() for line in axes.lines] == [[1, 3, 5], [2, 4, 6]]


def test_a_bank_is_drawn_by_its_formula(axes):
    kernel = DecayingPeriodicBank(2, 1, alpha=0.7, sigma=1.5, length=9.0, tau=(3.0, 3.0))
    bank_lines(axes, kernel, 5)
    expected = [
        1.5**2 * math.exp(-lag / 9) * math.exp(-2 * 0.7**2 * math.sin(lag / 3) ** 2) for lag in range(5)
    ]
    for line in axes.lines:
        np.testing.assert_allclose(line.get_ydata(), expected, rtol=1e-5)
    with pytest.raises(ValueError, match=r"^bank_lines: length must be at least 1 lag, not 0"):
        bank_lines(axes, kernel, 0)


def test_a_bank_of_a_trained_decoder_is_found(axes):
    model = gpt(
        GPTConfig(vocab_size=5, context=8, dim=16, depth=1, num_heads=2, positions="none"), attention="gpa"
    )
    bank_lines(axes, model.blocks[0].attn.kernel.second, 8)
    assert len(axes.lines) == 2


def test_rows_have_a_color_per_document_and_a_dot_where_one_begins(axes):
    tokens = torch.tensor([[9, 1, 2, 9], [3, 4, 9, 5], [9, 6, -1, -1]])
    image = maps.rows(axes, tokens, 9, title="rows")
    shades = np.ma.filled(image.get_array(), np.nan)
    numbers = np.array([[1, 1, 1, 2], [2, 2, 3, 3], [4, 4, np.nan, np.nan]])
    np.testing.assert_allclose(shades, numbers * 7 % 20)
    (dots,) = axes.lines
    assert dots.get_ydata().tolist() == [0, 2] and axes.get_title("left") == "rows"
