"""Walks have the shares of variance that are known, and a run the cosine of its steps."""

import math

import pytest
import torch

from chapters.experiments.walks import (
    persistent_shares,
    random_plane,
    random_walk,
    step_cosine,
    step_lengths,
    walk_shares,
)
from gkalib.analysis.landscape import trajectory_plane
from tests.tolerance import equal, oracle


def test_a_random_walk_looks_like_cosines():
    """Its shares are near 6 / (π² k²), and component k runs like cos(π k t / T)."""
    plane = trajectory_plane(random_walk(200, 20_000, seed=0))
    k = torch.arange(1, 6)
    law = 6 / (math.pi * k) ** 2
    assert (plane.explained[:5] / law - 1).abs().max() < 0.03
    centered = plane.coordinates - plane.coordinates.mean(0)
    time = torch.arange(201) / 200
    for number in range(5):
        cosine = torch.cos(math.pi * (number + 1) * time)
        assert torch.corrcoef(torch.stack([centered[:, number], cosine.double()]))[0, 1].abs() > 0.99


def test_equal_steps_have_the_shares_of_a_chain():
    n = 51
    k = torch.arange(1, n).double()
    exact = 6 / ((n**2 - 1) * 4 * torch.sin(math.pi * k / (2 * n)) ** 2)
    oracle(walk_shares(torch.full((n - 1,), 0.3).double()), exact)
    long = walk_shares(torch.ones(1000, dtype=torch.float64))[:5]
    assert (long * (math.pi * k[:5]) ** 2 / 6 - 1).abs().max() < 1e-3


def test_orthogonal_steps_of_any_length_have_exactly_these_shares():
    lengths = torch.tensor([3.0, 0.5, 1.0, 2.0, 0.1]).double()
    path = torch.cat([torch.zeros(1, 5).double(), torch.diag(lengths).cumsum(0)])
    snapshots = [{"x": row} for row in path]
    oracle(step_lengths(snapshots), lengths)
    oracle(walk_shares(lengths), trajectory_plane(snapshots).explained)


def test_a_walk_of_uneven_steps_has_nearly_these():
    """In 20,000 dimensions, with steps that shrink a hundredfold as a learning rate does."""
    steps = random_walk(60, 20_000, seed=1)
    scale = torch.logspace(0, -2, 60)
    moves = torch.stack([one["weights"] for one in steps]).diff(dim=0) * scale[:, None]
    snapshots = [{"x": row} for row in torch.cat([moves[:1] * 0, moves.cumsum(0)])]
    found, expected = trajectory_plane(snapshots).explained[:4], walk_shares(step_lengths(snapshots))[:4]
    assert (found / expected - 1).abs().max() < 0.02
    assert abs(found[0] - 6 / math.pi**2) > 5 * abs(found[0] - expected[0])


def test_a_persistent_walk_has_the_shares_of_its_inner_products():
    """Steps of one length with the cosine 0.6 to the power of their distance, made exactly so."""
    apart = (torch.arange(30) - torch.arange(30)[:, None]).abs()
    gram = 0.6 ** apart.double()
    steps = torch.linalg.cholesky(gram)  # rows with these inner products
    path = [{"a": row} for row in torch.cat([torch.zeros(1, 30).double(), steps.cumsum(0)])]
    found = persistent_shares(path)
    oracle(found, trajectory_plane(path).explained)
    assert found[0] > walk_shares(torch.ones(30))[0] + 0.02
    with pytest.raises(ValueError, match=r"^persistent_shares: two successive snapshots are equal"):
        persistent_shares([path[0], path[0], path[1]])


def test_the_persistent_walk_of_a_run_in_a_plane_lies_in_a_plane():
    """So the comparison cannot tell such a run from any other; a walk of its step lengths can."""
    angles, lengths = torch.arange(60).double() / 30, 0.95 ** torch.arange(60).double()
    moves = torch.stack([angles.cos(), angles.sin()], dim=1) * lengths[:, None]
    run = [{"a": row} for row in torch.cat([moves[:1] * 0, moves.cumsum(0)])]
    oracle(persistent_shares(run)[:2], trajectory_plane(run).explained[:2])
    assert trajectory_plane(run).explained[:2].sum() == pytest.approx(1)
    assert walk_shares(step_lengths(run))[:2].sum() < 0.9


def test_the_cosine_of_steps():
    line = [{"x": i * torch.ones(4), "n": torch.tensor(i)} for i in range(5)]
    assert step_cosine(line) == pytest.approx(1.0)
    back = [{"x": (i % 2) * torch.ones(4)} for i in range(5)]
    assert step_cosine(back) == pytest.approx(-1.0)
    assert abs(step_cosine(random_walk(50, 20_000, seed=0))) < 0.01


def test_what_does_not_walk_is_refused():
    with pytest.raises(ValueError, match=r"^walk_shares: a walk needs a step"):
        walk_shares(torch.zeros(3))
    for still in ([{"x": torch.ones(2)}] * 4, random_walk(1, 3, seed=0)):
        with pytest.raises(ValueError, match=r"^step_cosine: needs three snapshots or more"):
            step_cosine(still)


def test_a_filter_gets_the_length_of_the_weights_own():
    weights = {"matrix": torch.randn(5, 3, 2), "vector": torch.randn(4), "count": torch.tensor(3)}
    plane = random_plane(weights, seed=1)
    generator = torch.Generator().manual_seed(1)
    for axis in plane.axes:
        raw = torch.randn(5, 3, 2, generator=generator, dtype=torch.float64)
        torch.randn(4, generator=generator, dtype=torch.float64)
        for row in range(5):
            length = weights["matrix"][row].double().square().sum().sqrt() / raw[row].square().sum().sqrt()
            equal(axis["matrix"][row], raw[row] * length)
        assert axis["vector"].count_nonzero() == 0 and "count" not in axis
    assert not torch.equal(plane.axes[0]["matrix"], random_plane(weights, seed=2).axes[0]["matrix"])


def test_a_plane_of_unit_axes_is_orthonormal():
    plane = random_plane({"a": torch.randn(30, 3), "b": torch.randn(5)}, seed=0, scale="unit")
    axes = torch.stack([torch.cat([part.flatten() for part in axis.values()]) for axis in plane.axes])
    equal(axes @ axes.T, torch.eye(2, dtype=torch.float64))


@pytest.mark.parametrize(
    ("shape", "scale", "message"),
    [((3, 3), "layer", "scale must be one of"), ((3,), "filter", "no tensor has filters")],
)
def test_what_spans_no_plane_is_refused(shape, scale, message):
    with pytest.raises(ValueError, match=f"^random_plane: {message}"):
        random_plane({"a": torch.ones(shape)}, seed=0, scale=scale)
