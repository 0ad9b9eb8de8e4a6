"""Surfaces as contours: their lines, their colors, and which way is across."""

import matplotlib.pyplot as plt
import pytest
import torch

from gkalib.analysis.landscape import Surface
from gkalib.viz.surfaces import surface


def drawn(losses):
    _, axes = plt.subplots()
    first, second = torch.linspace(-2, 2, 9), torch.linspace(-1, 1, 9)
    shown = surface(axes, Surface(first, second, losses(first[:, None], second)), lines=(0.5, 1), lowest=0.1,
                    highest=10)  # fmt: skip
    return axes, shown


def test_lines_carry_their_losses_and_the_first_direction_is_across():
    axes, shown = drawn(lambda x, y: 10 ** (x + 0 * y).double())
    assert shown.get_clim() == (-1.0, 1.0)
    assert [text.get_text() for text in axes.texts] == ["0.5", "1"]
    # where the loss is 1 the first coordinate is 0, whatever the second
    (line,) = [path for path in axes.collections[-1].get_paths() if len(path.vertices)][-1:]
    assert abs(line.vertices[:, 0]).max() < 1e-9 and line.vertices[:, 1].max() > 0.9


def test_a_loss_of_zero_is_drawn_and_colors_without_range_are_refused():
    drawn(lambda x, y: (x**2 + y**2).double())
    with pytest.raises(ValueError, match=r"^surfaces.surface: needs 0 < lowest"):
        surface(
            plt.figure().subplots(), Surface(*torch.eye(3)[:2], torch.eye(3)), lines=(1,), lowest=0, highest=1
        )
