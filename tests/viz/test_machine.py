"""The pictures agree with what they show: rates of the floors, products of a backward pass."""

import numpy as np
import pytest

from gkalib.bench.roofline import STATED
from gkalib.viz.machine import multiprocessor, owners


def test_four_quarters_add_up_to_the_rates_of_the_data_sheet():
    words = [text.get_text() for text in multiprocessor().axes[0].texts]
    quarters = [
        words.count(f"{name}") for name in ("tensor core\n512 mult.-adds", "32 lanes\n4 exponentials")
    ]
    assert quarters == [4, 4]
    stated, clock = STATED["H100"], STATED["H100"].exponentials / (4 * 4 * 132)
    assert stated.issue == 4 * 32 * 132 * clock
    assert abs(stated.products / (4 * 512 * 2 * 132 * clock) - 1) < 0.05, "at a clock that is 4 % higher"


def test_no_part_covers_another():
    boxes = [patch.get_bbox() for patch in multiprocessor().axes[0].patches if patch.get_fill()]
    assert len(boxes) == 3 + 4 * 4
    for place, one in enumerate(boxes):
        assert not any(
            min(one.x1, other.x1) > max(one.x0, other.x0) and min(one.y1, other.y1) > max(one.y0, other.y0)
            for other in boxes[place + 1 :]
        )


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
