"""The line under a slider has the library's answer and slope."""

import matplotlib.pyplot as plt
import pytest
import torch

from chapters.figures import local_linear_attention as figures
from gkalib import attention_weights, smooth
from gkalib.kernels import Gaussian

KERNEL = Gaussian(0.25)


@pytest.mark.parametrize("ridge", ["0", "0.3", "∞"])
def test_the_line_passes_through_the_answer_with_the_best_slope(ridge):
    places = torch.linspace(-1.6, 1.6, 161, dtype=torch.float64)
    key = places[30:131:5]
    figure = figures.dial(1.0, ridge, places, key, (3 * places).sin(), KERNEL)
    above, below = figure.axes
    line = {} if ridge == "∞" else {"degree": 1, "ridge": float(ridge)}
    at, value = torch.tensor([1.0], dtype=torch.float64), (3 * key).sin()
    answer = smooth(at, key, value, KERNEL, **line).item()
    left, middle, right = above.lines[3].get_ydata()
    assert middle == pytest.approx(answer) and (left + right) / 2 == pytest.approx(answer)
    weights = attention_weights(at, key, KERNEL)[0]
    design = torch.stack([torch.ones_like(key), key - 1], -1)
    penalty = torch.diag(torch.tensor([0.0, float(ridge.replace("∞", "1e9"))], dtype=torch.float64))
    best = torch.linalg.solve(design.T @ (weights[:, None] * design) + penalty, design.T @ (weights * value))
    assert (right - left) / (2 * figures.REACH) == pytest.approx(best[1].item(), abs=1e-6)
    heights = torch.tensor([end[1][1] for end in below.collections[0].get_segments()])
    assert torch.allclose(heights, attention_weights(at, key, KERNEL, **line)[0])
    plt.close(figure)
