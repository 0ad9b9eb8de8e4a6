"""A gallery of images in rows."""

import numpy as np
import pytest
import torch

from chapters.figures import bounded_confidence as figures


def test_a_gallery_has_a_row_for_each_name_and_the_same_grays_everywhere():
    images = {"dark": [np.full((4, 4), 0.1)] * 3, "light": [torch.full((4, 4), 0.9)] * 3}
    figure = figures.gallery(images, ["first", "second", "third"])
    panels = np.array(figure.axes).reshape(2, 3)
    assert [axes.get_ylabel() for axes in panels[:, 0]] == ["dark", "light"]
    assert [axes.get_title("left") for axes in panels[0]] == ["first", "second", "third"]
    for line, row in zip(panels, images.values(), strict=True):
        for axes, image in zip(line, row, strict=True):
            np.testing.assert_allclose(axes.images[0].get_array(), image)
    assert {axes.images[0].get_clim() for axes in panels.flat} == {(0.0, 1.0)}
    for titles in (["first"], ["first", "second", "third", "fourth"]):
        with pytest.raises(ValueError, match=r"^zip\(\) argument 2 is (longer|shorter)"):
            figures.gallery(images, titles)
