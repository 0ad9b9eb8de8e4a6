"""Runs along their components, and beside their projections: what lines and marks carry."""

import numpy as np
import pytest
import torch

from gkalib.analysis.landscape import Surface, random_walk, trajectory_plane
from gkalib.viz import style, trajectories

SHADES = {"walk": "black", "run": "blue"}


def planes(*steps: int) -> dict:
    names = SHADES.keys()
    walks = (random_walk(count, 2_000, seed=seed) for seed, count in enumerate(steps))
    return {name: trajectory_plane(walk) for name, walk in zip(names, walks, strict=True)}


def test_coordinates_have_length_one_begin_above_zero_and_lie_near_the_cosines():
    found = planes(60, 60)
    figure = trajectories.components(found, SHADES)
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
        trajectories.components(planes(10, 20), SHADES)


def test_a_run_is_drawn_over_its_surface_and_its_losses_beside_those_of_its_projections():
    found = planes(12, 12)
    ticks = torch.linspace(-80, 80, 9, dtype=torch.float64)
    bowl = Surface(ticks, ticks, 0.01 + (ticks[:, None] ** 2 + ticks**2) / 1000)
    losses = {name: (torch.linspace(2, 1, 5), torch.linspace(1, 0.5, 5)) for name in found}
    figure = trajectories.projected(found, dict.fromkeys(found, bowl), losses, SHADES, every=3)
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
