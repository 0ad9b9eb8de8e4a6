"""Named curves: their colors and labels, and ticks as plain numbers."""

import numpy as np
import torch

from gkalib.viz import curves, style


def test_each_curve_has_its_name_its_color_and_its_values(axes):
    given = {"b": ([3, 2, 1], "orange"), "a": (torch.tensor([1.0, 2.0, 4.0], requires_grad=True), "blue")}
    curves.named(axes, [1, 10, 100], given, line="s:")
    assert axes.get_legend_handles_labels()[1] == ["b", "a"]
    for line, (values, shade) in zip(axes.lines, given.values(), strict=True):
        np.testing.assert_array_equal(line.get_xydata().T, [[1, 10, 100], torch.as_tensor(values).detach()])
        assert line.get_color() == style.PALETTE[shade]
        assert (line.get_marker(), line.get_linestyle()) == ("s", ":")


def test_a_logarithmic_axis_has_these_ticks_alone_as_plain_numbers(axes):
    axes.plot([0.25, 200], [0, 1])
    curves.log_ticks(axes, [0.25, 12, 197])
    assert axes.get_xscale() == "log" and list(axes.get_xticks()) == [0.25, 12, 197]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0.25", "12", "197"]
    assert len(axes.get_xticks(minor=True)) == 0
