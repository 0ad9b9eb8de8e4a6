"""Of the dots of a floor the longest is filled."""

from chapters.figures import benchmarks
from gkalib.bench.roofline import Floor


def test_the_largest_dot_is_filled():
    shapes = {"one": Floor(3e-6, 2e-6, 1e-6, 0.0), "two": Floor(1e-6, 2e-6, 5e-6, 0.0)}
    (axes,) = benchmarks.floors(shapes).axes
    dots = [line for line in axes.lines if line.get_marker() == "o"]
    assert [dot.get_fillstyle() == "full" for dot in dots] == [True, False, False, False, False, True]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["one", "two"]
