"""Surfaces as contours, runs along their components and beside their projections: lines and marks."""

import matplotlib.pyplot as plt
import torch

from chapters.experiments.walks import random_walk
from chapters.figures.landscapes_and_spectra import components, projected, surface
from gkalib.analysis.landscape import Surface, trajectory_plane
from gkalib.viz import style

SHADES = {"walk": "black", "run": "blue"}


def planes(*steps: int) -> dict:
    names = SHADES.keys()
    walks = (random_walk(count, 2_000, seed=seed) for seed, count in enumerate(steps))
    return {name: trajectory_plane(walk) for name, walk in zip(names, walks, strict=True)}


def test_runs_have_their_colors_and_a_legend():
    figure = components(planes(60, 60), SHADES)
    *panels, _ = figure.axes
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["theorem", *SHADES]
    for axes in panels:
        assert [line.get_color() for line in axes.lines[1:]] == [style.PALETTE[of] for of in SHADES.values()]


def test_a_run_begins_at_a_dot_and_its_projection_is_dotted():
    found = planes(12, 12)
    ticks = torch.linspace(-80, 80, 9, dtype=torch.float64)
    bowl = Surface(ticks, ticks, 0.01 + (ticks[:, None] ** 2 + ticks**2) / 1000)
    losses = {name: (torch.linspace(2, 1, 5), torch.linspace(1, 0.5, 5)) for name in found}
    *maps, right = projected(found, dict.fromkeys(found, bowl), losses, SHADES, every=3).axes
    for axes in maps:
        _, begin, end = axes.lines
        assert begin.get_marker() == "o" and end.get_marker() == "x"
    assert [line.get_linestyle() for line in right.lines] == ["-", ":", "-", ":"]


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


def test_a_loss_of_zero_is_drawn():
    drawn(lambda x, y: (x**2 + y**2).double())
