"""Blocks of patches beside their pictures, and rows of dots in groups."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from chapters.figures import looking_inside as figures
from gkalib.viz import style


def test_patches_are_blocks_from_zero_to_the_largest(axes):
    image = figures.patches(axes, torch.tensor([[0.5, 1.0], [2.0, 1.5]]), title="map")
    assert image.get_interpolation() == "nearest" and image.get_clim() == (0.0, 2.0)
    np.testing.assert_array_equal(image.get_array(), [[0.5, 1.0], [2.0, 1.5]])
    assert figures.patches(axes, torch.ones(2, 2), largest=4).get_clim() == (0.0, 4.0)
    with pytest.raises(ValueError, match=r"^patches: a map has two axes"):
        figures.patches(axes, np.ones(4))


def test_maps_stand_beside_their_pictures_each_relative_to_its_largest():
    pictures, maps_of = torch.rand(2, 8, 8), {"one": torch.rand(2, 4), "none": torch.zeros(2, 4)}
    figure = figures.beside(pictures, maps_of, names=["first", "second"])
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
        figures.beside(pictures, {"one": torch.rand(1, 4)})
    with pytest.raises(ValueError, match=r"^patch_grid: 5 weights make no square"):
        figures.beside(pictures, {"one": torch.rand(2, 5)})


def test_rows_go_down_in_the_order_of_the_groups():
    _, axes = plt.subplots()
    values = {"c": [1.0], "a": [2.0, 3.0], "b": [4.0]}
    rows = figures.grouped(
        axes,
        values,
        {"first": ("blue", ["a", "b"]), "second": ("orange", ["c"])},
        ticks={"a": 0.5, "b": 0.6, "c": 0.7},
        hollow={"b"},
        name_groups=True,
    )
    assert list(rows) == ["a", "b", "c"] == [label.get_text() for label in axes.get_yticklabels()]
    assert rows["a"] - rows["b"] == 1 and rows["b"] - rows["c"] == 1 + figures.GAP
    drawn, ticks = axes.lines[::2], axes.lines[1::2]
    assert [list(line.get_xdata()) for line in drawn] == [values[arm] for arm in rows]
    colors = [style.PALETTE[name] for name in ("blue", "blue", "orange")]
    assert [line.get_color() for line in drawn] == colors
    assert [line.get_fillstyle() for line in drawn] == ["full", "none", "full"]
    assert [line.get_xdata()[0] for line in ticks] == [0.5, 0.6, 0.7]
    assert [text.get_text() for text in axes.texts] == ["first", "second"]
    np.testing.assert_allclose(np.mean(drawn[0].get_ydata()), rows["a"])
