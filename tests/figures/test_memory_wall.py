"""The picture of a multiprocessor agrees with the rates of the floors."""

from chapters.figures.memory_wall import multiprocessor
from gkalib.bench.roofline import STATED


def test_four_quarters_add_up_to_the_rates_of_the_data_sheet():
    words = [text.get_text() for text in multiprocessor().axes[0].texts]
    quarters = [
        words.count(f"{name}") for name in ("tensor core\n512 mult.-adds", "32 lanes\n4 exponentials")
    ]
    assert quarters == [4, 4]
    stated, clock = STATED["H100"], STATED["H100"].exponentials / (4 * 4 * 132)
    assert stated.issue == 4 * 32 * 132 * clock
    assert abs(stated.products / (4 * 512 * 2 * 132 * clock) - 1) < 0.05, "at a clock that is 4 % higher"
