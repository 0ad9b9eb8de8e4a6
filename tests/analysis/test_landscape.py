"""Planes are what numpy's SVD says, surfaces what the model says, and the model is left as it was."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from chapters.experiments.landscapes import roughness
from chapters.experiments.walks import random_plane
from gkalib.analysis.landscape import (
    Surface,
    loss_on,
    losses_at,
    snapshot,
    trajectory_plane,
    using,
)
from gkalib.models import ViTConfig, vit
from tests.tolerance import equal, oracle


def flat(weights: dict[str, Tensor]) -> Tensor:
    """All numbers of a set of weights in one row."""
    return torch.cat([tensor.flatten() for tensor in weights.values()])


def paths(steps: int = 7) -> list[dict[str, Tensor]]:
    """Snapshots of two tensors and a count, which is no weight."""
    return [
        {"a": torch.randn(3, 4, dtype=torch.float64), "b": torch.randn(5).double(), "n": torch.tensor(i)}
        for i in range(steps)
    ]


def small(**changes: object) -> nn.Module:
    """A transformer of a few hundred parameters in float64."""
    sizes = {"image_size": 4, "patch_size": 2, "channels": 1, "dim": 4, "depth": 1, "num_heads": 2}
    return vit(ViTConfig(**{**sizes, "mlp_ratio": 1.0, "num_classes": 3, **changes})).double().eval()


def loss_of(dtype: torch.dtype = torch.float64) -> Callable[[nn.Module], Tensor]:
    """The cross-entropy of made-up pictures."""
    images, labels = torch.randn(6, 1, 4, 4, dtype=dtype), torch.arange(6) % 3
    return lambda model: cross_entropy(model(images), labels)


def test_a_trajectory_is_decomposed_as_numpy_does_it():
    snapshots = paths()
    plane = trajectory_plane(snapshots)
    rows = np.stack([np.concatenate([one["a"].numpy().ravel(), one["b"].numpy()]) for one in snapshots])
    left, sizes, right = np.linalg.svd(rows - rows.mean(0), full_matrices=False)
    oracle(plane.explained, torch.from_numpy(sizes[:6] ** 2 / (sizes**2).sum()))
    scores = torch.from_numpy(left * sizes)[:, :6]
    relative = scores - scores[-1]
    sign = torch.where(relative[0] < 0, -1.0, 1.0).double()
    oracle(plane.coordinates, relative * sign)
    for axis, direction, way in zip(plane.axes, torch.from_numpy(right), sign, strict=False):
        oracle(flat(axis), direction * way)
    oracle(plane.distances, torch.from_numpy(np.linalg.norm(rows - rows[-1], axis=1)))
    assert "n" not in plane.origin and (plane.coordinates[0] >= 0).all()


def test_a_planted_plane_is_found():
    """A path in a plane of a space of 400 dimensions is explained by it and by nothing else."""
    basis = torch.linalg.qr(torch.randn(400, 2, dtype=torch.float64))[0]
    angle = torch.linspace(0, 5, 30, dtype=torch.float64)
    place = torch.stack([3 * angle, angle.sin()], dim=1)
    plane = trajectory_plane([{"x": row.reshape(20, 20)} for row in place @ basis.T + 7.0])
    assert plane.explained[:2].sum() == pytest.approx(1.0, abs=1e-12)
    axes = torch.stack([flat(axis) for axis in plane.axes])
    oracle(axes @ axes.T, torch.eye(2, dtype=torch.float64))
    oracle((axes @ basis) @ (axes @ basis).T, torch.eye(2, dtype=torch.float64))
    oracle(plane.coordinates[:, :2].norm(dim=1), plane.distances)
    first = plane.at(float(plane.coordinates[0, 0]), float(plane.coordinates[0, 1]))
    oracle(first["x"], (place[0] @ basis.T + 7.0).reshape(20, 20))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_surface_is_the_models_loss_and_the_weights_come_back(dtype: torch.dtype):
    """In its middle to the bit, elsewhere that of a model with the weights added by hand."""
    model, loss = small().to(dtype), loss_of(dtype)
    before = snapshot(model)
    plane = random_plane(before, seed=0)
    surface = loss_on(plane, model, loss, points=5, span=0.5)
    assert surface.losses[2, 2] == loss(model).item()
    after = snapshot(model)
    assert all(torch.equal(before[name], after[name]) for name in before)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            moved = before[name].double() + 0.5 * plane.axes[0][name] - 0.25 * plane.axes[1][name]
            parameter.copy_(moved.to(dtype))
    assert surface.losses[4, 1] == loss(model).item()
    assert surface.first[4] == 0.5 and surface.second[1] == -0.25


def test_losses_along_a_line_are_those_of_the_surface():
    model, loss = small(), loss_of()
    before = snapshot(model)
    plane = random_plane(before, seed=0)
    surface = loss_on(plane, model, loss, points=5, span=0.5)
    line = (plane.at(a, 0.0) for a in surface.first.tolist())
    equal(losses_at(line, model, loss), surface.losses[:, 2])
    assert all(torch.equal(before[name], one) for name, one in model.named_parameters())


def test_weights_come_back_after_an_error():
    model = small()
    before = snapshot(model)

    def fails(model: nn.Module) -> Tensor:
        raise RuntimeError("no loss")

    with pytest.raises(RuntimeError):
        loss_on(random_plane(before, seed=0), model, fails, points=3)
    assert all(torch.equal(before[name], one) for name, one in model.named_parameters())


def test_a_grid_covers_the_trajectory():
    plane = trajectory_plane(paths())
    first, second = plane.ticks(9)
    places = plane.coordinates[:, :2]
    for ticks, column in ((first, places[:, 0]), (second, places[:, 1])):
        assert ticks[0] < column.min() and ticks[-1] > column.max()
    oracle(first[-1] - first[0], second[-1] - second[0])
    side = (places.amax(0) - places.amin(0)).max()
    assert float((first[-1] - first[0]) / side) == pytest.approx(1.5)


def test_minima_and_roughness():
    """A bowl has one minimum and is smooth, four times as smooth at half the step; noise is neither."""

    def bowl(points: int) -> Surface:
        ticks = torch.linspace(-1, 1, points, dtype=torch.float64)
        return Surface(ticks, ticks, ticks[:, None] ** 2 + 3 * ticks**2)

    assert bowl(21).minima() == 1
    assert roughness(bowl(21)) / roughness(bowl(41)) == pytest.approx(4, rel=0.2)
    ticks = torch.linspace(0, 1, 200, dtype=torch.float64)
    noise = Surface(ticks, ticks, torch.randn(200, 200, dtype=torch.float64))
    assert roughness(noise) == pytest.approx(math.sqrt(5 / 4), rel=0.02)
    assert noise.minima() == pytest.approx(198**2 / 9, rel=0.1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: trajectory_plane(paths(2)), "trajectory_plane: needs three snapshots or more, not 2"),
        (
            lambda: trajectory_plane([*paths(3), {"a": torch.zeros(2)}]),
            "trajectory_plane: the snapshots do not hold the same tensors",
        ),
        (
            lambda: trajectory_plane([{"a": torch.ones(3)}] * 4),
            "trajectory_plane: the snapshots lie on a line, or are all the same",
        ),
        (
            lambda: trajectory_plane([{"a": i * torch.ones(3)} for i in range(4)]),
            "trajectory_plane: the snapshots lie",
        ),
        (
            lambda: loss_on(random_plane({"a": torch.ones(3, 3)}, seed=0), small(), loss_of(), points=1),
            "loss_on: points must be two or more",
        ),
        (
            lambda: loss_on(random_plane({"a": torch.ones(3, 3)}, seed=0), small(), loss_of(), points=3),
            "using: the model has no 'a'",
        ),
        (
            lambda: using(small(), {"head.weight": torch.ones(3, 3)}).__enter__(),
            r"using: the model's 'head\.weight' has shape \[3, 4\], and \[3, 3\] was given",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused(call: Callable, message: str):
    with pytest.raises(ValueError, match=f"^{message}"):
        call()
