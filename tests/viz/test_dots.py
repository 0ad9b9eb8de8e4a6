"""Rows of dots: their order, their colors, and what is marked."""

import matplotlib.pyplot as plt
import numpy as np

from gkalib.viz import dots, style


def test_rows_go_down_in_the_order_of_the_groups():
    _, axes = plt.subplots()
    values = {"c": [1.0], "a": [2.0, 3.0], "b": [4.0]}
    rows = dots.grouped(
        axes,
        values,
        {"first": ("blue", ["a", "b"]), "second": ("orange", ["c"])},
        ticks={"a": 0.5, "b": 0.6, "c": 0.7},
        hollow={"b"},
        name_groups=True,
    )
    assert list(rows) == ["a", "b", "c"] == [label.get_text() for label in axes.get_yticklabels()]
    assert rows["a"] - rows["b"] == 1 and rows["b"] - rows["c"] == 1 + dots.GAP
    drawn, ticks = axes.lines[::2], axes.lines[1::2]
    assert [list(line.get_xdata()) for line in drawn] == [values[arm] for arm in rows]
    colors = [style.PALETTE[name] for name in ("blue", "blue", "orange")]
    assert [line.get_color() for line in drawn] == colors
    assert [line.get_fillstyle() for line in drawn] == ["full", "none", "full"]
    assert [line.get_xdata()[0] for line in ticks] == [0.5, 0.6, 0.7]
    assert [text.get_text() for text in axes.texts] == ["first", "second"]
    np.testing.assert_allclose(np.mean(drawn[0].get_ydata()), rows["a"])
