"""Images in their colors, and contrasts with their seeds."""

import numpy as np
import pytest
import torch

from chapters.figures import vision_transformers as figures
from gkalib.viz import style
from tests.judgments import FOUND


def test_normalized_images_are_drawn_in_their_colors(axes):
    colors = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]], dtype=torch.float64)
    mean, deviation = colors[..., None, None]
    image = torch.rand(3, 4, 5, dtype=torch.float64)
    figures.images([axes], [(image - mean) / deviation])
    np.testing.assert_allclose(axes.images[0].get_array(), image.permute(1, 2, 0))
    assert not axes.get_xticks().size and not axes.spines["left"].get_visible()
    figures.images([axes], [torch.full((3, 2, 2), 9.0)])
    assert axes.images[-1].get_array().max() == 1.0
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        figures.images([axes], [])


def test_contrasts_of_a_row_lie_one_below_another_with_their_seeds(axes):
    drawn = {"first": {"blue": "a", "orange": "b"}, "second": {"black": "c"}}
    values = {"a": [0.1, -0.1], "b": [-0.35, -0.25], "c": [0.0, 0.02]}
    figures.contrasts(axes, drawn, FOUND, values)
    assert [row.get_text() for row in axes.get_yticklabels()] == ["first", "second"] and axes.yaxis_inverted()
    bars, dots = axes.lines[1::2], axes.lines[2::2]
    spans = [[FOUND[name].low, FOUND[name].high] for name in "abc"]
    np.testing.assert_allclose([bar.get_xdata() for bar in bars], spans)
    assert [list(line.get_xdata()) for line in dots] == [values[k] for k in "abc"]
    heights = [line.get_ydata()[0] for line in bars]
    np.testing.assert_allclose(heights, [-figures.HALF, figures.HALF, 1])
    assert heights == [line.get_ydata()[0] for line in dots]
    colors = [style.PALETTE[name] for name in ("blue", "orange", "black")]
    assert [line.get_color() for line in bars] == colors == [line.get_color() for line in dots]
