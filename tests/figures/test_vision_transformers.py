"""Images in their colors, and contrasts one below another."""

import torch

from chapters.figures import vision_transformers as figures
from gkalib.viz import style
from tests.judgments import FOUND


def test_images_have_no_axes_and_no_color_beyond_white(axes):
    figures.images([axes], [torch.full((3, 2, 2), 9.0)])
    assert not axes.get_xticks().size and not axes.spines["left"].get_visible()
    assert axes.images[-1].get_array().max() == 1.0


def test_contrasts_of_a_row_lie_one_below_another_in_their_colors(axes):
    drawn = {"first": {"blue": "a", "orange": "b"}, "second": {"black": "c"}}
    figures.contrasts(axes, drawn, FOUND, {"a": [0.1, -0.1], "b": [-0.35, -0.25], "c": [0.0, 0.02]})
    assert [row.get_text() for row in axes.get_yticklabels()] == ["first", "second"] and axes.yaxis_inverted()
    bars, dots = axes.lines[1::2], axes.lines[2::2]
    colors = [style.PALETTE[name] for name in ("blue", "orange", "black")]
    assert [line.get_color() for line in bars] == colors == [line.get_color() for line in dots]
