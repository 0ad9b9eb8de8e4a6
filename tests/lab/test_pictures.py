"""What a decoding step reads is what its window shows, and centering keeps half precision's digits."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from chapters.lab.pictures import cache_reads, centering, forward_reads, slice_memory
from gkalib.smoothing.fused.launch import interpreting

pytestmark = pytest.mark.skipif(not interpreting(), reason="Triton's interpreter is off")


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def test_an_instance_loads_its_queries_and_what_they_see_and_its_own_keys_twice():
    heads, token = torch.randn(3, 48, 16, dtype=torch.float64), np.arange(48)
    panels = np.reshape(forward_reads(*heads).axes, (3, 3))
    for row, end in zip(panels, (48, 32, 16), strict=True):  # the last rows first
        own, seen = (end - 16 <= token) & (token < end), token < end
        for panel, loads in zip(row, (own, seen.astype(int) + own, seen), strict=True):
            np.testing.assert_array_equal(panel.images[0].get_array(), np.tile(loads[:, None], 16))
    titles = [panel.get_title() or panel.get_title("left") for panel in panels[0]]  # where the style has them
    assert titles == ["queries", "keys", "values"]
    with pytest.raises(ValueError, match=r"one head are \[n d\], not \[1, 48, 16\]"):
        forward_reads(*heads[:, None])


def test_a_step_reads_its_window_and_nothing_else():
    lengths, place = np.array([[2], [7], [20]]), np.arange(24)
    (axes,) = cache_reads(lengths[:, 0].tolist(), places=24, window=6).axes
    dark = (place < lengths) & (place >= lengths - 6)
    light = place < lengths - 6
    np.testing.assert_array_equal(axes.images[0].get_array(), dark + 0.25 * light)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["2 tokens", "7 tokens", "20 tokens"]
    with pytest.raises(ValueError, match=r"1 to 24 tokens, not \[0, 25\]"):
        cache_reads([0, 25], places=24)


def test_centered_tokens_may_lie_anywhere():
    (axes,) = centering(torch.randn(32, 16, dtype=torch.float64), offsets=(0, 16)).axes
    given, centered = (line.get_ydata() for line in axes.lines)
    assert given[1] > 3 * given[0] and centered[1] < 1.5 * centered[0]
    with pytest.raises(ValueError, match=r"one head are \[n d\], not \[2, 32, 16\]"):
        centering(torch.zeros(2, 32, 16))


def test_slices_grow_with_the_length_and_slopes_with_its_square():
    (axes,) = slice_memory([512, 4096, 8192], batch=8, heads=12).axes
    slopes, slices = (line.get_ydata() for line in axes.lines)
    np.testing.assert_allclose(slopes, [2 * 96 * n**2 / 1e6 for n in (512, 4096, 8192)])
    # Eight blocks of 64 have a slice each, of as many lags as queries and keys; long texts have 16 to 21.
    np.testing.assert_allclose(slices[0], 96 * 8 * 1024 * 4 / 1e6)
    assert all(
        16 <= 1e6 * mb / (96 * 2 * n * 4) <= 21 for n, mb in zip((4096, 8192), slices[1:], strict=True)
    )
    with pytest.raises(ValueError, match=r"positive, not \[0\]"):
        slice_memory([0])
