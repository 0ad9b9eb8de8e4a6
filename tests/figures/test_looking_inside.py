"""Blocks of patches beside their pictures, and rows of dots in groups."""

import matplotlib.pyplot as plt
import numpy as np
import torch

from chapters.figures import looking_inside as figures
from gkalib.viz import style


def test_maps_beside_their_pictures_have_one_scale():
    figure = figures.beside(torch.rand(2, 8, 8), {"one": torch.rand(2, 4), "none": torch.zeros(2, 4)})
    maps = np.array(figure.axes[:-1]).reshape(2, 3)[:, 1:]
    assert {axes.images[0].get_clim() for axes in maps.flat} == {(0.0, 1.0)}
    assert not maps[0, 1].images[0].get_array().any()


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
    drawn = axes.lines[::2]
    colors = [style.PALETTE[name] for name in ("blue", "blue", "orange")]
    assert [line.get_color() for line in drawn] == colors
    assert [line.get_fillstyle() for line in drawn] == ["full", "none", "full"]
