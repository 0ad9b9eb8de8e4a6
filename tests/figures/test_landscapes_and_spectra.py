"""Surfaces as contours, runs along their components and beside their projections: lines and marks."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
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


def test_coordinates_have_length_one_begin_above_zero_and_lie_near_the_cosines():
    found = planes(60, 60)
    figure = components(found, SHADES)
    *panels, plane = figure.axes
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["theorem", *SHADES]
    for column, axes in enumerate(panels):
        cosine, *lines = (line.get_ydata() for line in axes.lines)
        assert [line.get_color() for line in axes.lines[1:]] == [style.PALETTE[of] for of in SHADES.values()]
        for line, one in zip(lines, found.values(), strict=True):
            assert np.linalg.norm(line) == pytest.approx(1) and line[0] > 0
            scores = one.coordinates[:, column].numpy()
            assert abs(np.corrcoef(line, scores)[0, 1]) == pytest.approx(1)
            assert np.corrcoef(line, cosine)[0, 1] > 0.9
        assert np.linalg.norm(cosine) == pytest.approx(1, rel=0.05)
    for line, left, right in zip(plane.lines, panels[0].lines[1:], panels[1].lines[1:], strict=True):
        np.testing.assert_array_equal(line.get_xydata().T, [left.get_ydata(), right.get_ydata()])


def test_runs_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match=r"^components: the runs have 11, 21 snapshots"):
        components(planes(10, 20), SHADES)


def test_a_run_is_drawn_over_its_surface_and_its_losses_beside_those_of_its_projections():
    found = planes(12, 12)
    ticks = torch.linspace(-80, 80, 9, dtype=torch.float64)
    bowl = Surface(ticks, ticks, 0.01 + (ticks[:, None] ** 2 + ticks**2) / 1000)
    losses = {name: (torch.linspace(2, 1, 5), torch.linspace(1, 0.5, 5)) for name in found}
    figure = projected(found, dict.fromkeys(found, bowl), losses, SHADES, every=3)
    *maps, right = figure.axes
    for axes, (name, plane) in zip(maps, found.items(), strict=True):
        path, begin, end = axes.lines
        np.testing.assert_array_equal(path.get_xydata(), plane.coordinates[:, :2])
        np.testing.assert_array_equal(begin.get_xydata()[0], plane.coordinates[0, :2])
        assert begin.get_marker() == "o" and end.get_marker() == "x"
        assert list(end.get_xydata()[0]) == [0, 0] and axes.get_title("left") == name
    assert [line.get_linestyle() for line in right.lines] == ["-", ":", "-", ":"]
    assert all(list(line.get_xdata()) == [0, 3, 6, 9, 12] for line in right.lines)
    np.testing.assert_array_equal(right.lines[1].get_ydata(), losses["walk"][1])
    assert right.get_legend_handles_labels()[1] == ["walk", "… projected", "run", "… projected"]


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
    with pytest.raises(ValueError, match=r"^surface: needs 0 < lowest"):
        surface(
            plt.figure().subplots(), Surface(*torch.eye(3)[:2], torch.eye(3)), lines=(1,), lowest=0, highest=1
        )
