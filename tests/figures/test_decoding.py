"""A step takes the time of the bytes that it reads."""

import numpy as np

from chapters.figures import decoding
from gkalib.bench.roofline import STATED


def test_a_step_takes_the_time_of_weights_and_caches_that_fit():
    tokens, mib = np.array([1.0, 10.0, 100.0]), 2.0**20
    kept = {"all": (tokens * mib, "blue", "-"), "state": (3 * mib + 0 * tokens, "green", "--")}
    figure = decoding.steps(tokens, kept, {"one": (1e9, 1e7, ":")}, STATED["H100"], room=8e9)
    left, right = figure.axes
    np.testing.assert_allclose([line.get_ydata() for line in left.lines], [tokens, [3, 3, 3]])
    assert [line.get_linestyle() for line in left.lines] == ["-", "--"]
    single, many = (line.get_ydata() for line in right.lines)
    np.testing.assert_allclose(single, (1e9 + 1e7 * tokens) / 3.35e9)
    np.testing.assert_allclose(many, [1.64e9 / 3.35e9, 7.4e9 / 3.35e9, np.nan])
    assert [line.get_label() for line in right.lines] == ["one, batch 1", "one, batch 64"]
