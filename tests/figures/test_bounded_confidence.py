"""Images of a gallery have the same grays."""

import numpy as np

from chapters.figures import bounded_confidence as figures


def test_a_gallery_has_the_same_grays_everywhere():
    figure = figures.gallery({"dark": [np.full((4, 4), 0.1)] * 2, "light": [np.ones((4, 4))] * 2}, ["a", "b"])
    assert {axes.images[0].get_clim() for axes in figure.axes} == {(0.0, 1.0)}
