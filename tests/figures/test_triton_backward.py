"""Bars are the products of a backward pass, and the tiles those that an instance forms."""

import numpy as np
import pytest

from chapters.figures.triton_backward import owners


def test_bars_are_the_products_of_a_backward_pass():
    """Five a tile where one serves both roles; else three as query and four as key and value."""
    lag = np.arange(4)[:, None] - np.arange(4)
    for mask, seen, work in (
        ("none", lag < 4, [20] * 4),
        ("two-sided window", abs(lag) < 2, [10, 15, 15, 10]),
        ("causal", lag >= 0, [19, 18, 17, 16]),
        ("window", (lag >= 0) & (lag < 3), [15, 18, 17, 13]),
    ):
        tiles, bars = owners(mask, 1, blocks=4).axes
        assert [bar.get_height() for bar in bars.patches] == work
        colored = np.ptp(tiles.images[0].get_array(), axis=-1) > 0.01
        assert not (colored & ~seen).any()
        assert colored.sum() == seen[1].sum() + seen[:, 1].sum() - 1
        assert len(tiles.patches) == (mask in ("causal", "window")), "a diagonal tile of both colors"
    with pytest.raises(ValueError, match="two-sided window, blocks 0 to 7; not causal, 8"):
        owners("causal", 8)
