"""The loss around a trained model: the plane of its path, and the loss at the points of a plane."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gkalib.extras import moved

Weights = Mapping[str, Tensor]
Loss = Callable[[nn.Module], Tensor]

__getattr__ = moved(
    __name__,
    {
        name: f"chapters.experiments.walks.{name}"
        for name in (
            "persistent_shares",
            "random_plane",
            "random_walk",
            "step_cosine",
            "step_lengths",
            "walk_shares",
        )
    },
)


def snapshot(model: nn.Module) -> dict[str, Tensor]:
    """Copies of a model's parameters by name."""
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


@contextlib.contextmanager
def using(model: nn.Module, weights: Weights) -> Iterator[nn.Module]:
    """A model with other weights for a while; its own come back to the bit.

    Args:
        model: what is changed in place.
        weights: tensors by name; those that are not named stay.

    Raises:
        ValueError: if the model has no tensor of a name, or one of another shape.

    Taught in: chapter 26.
    """
    own = {**dict(model.named_buffers()), **dict(model.named_parameters())}
    for name, tensor in weights.items():
        if name not in own:
            raise ValueError(f"using: the model has no {name!r}")
        if own[name].shape != tensor.shape:
            shapes = f"{list(own[name].shape)}, and {list(tensor.shape)} was given"
            raise ValueError(f"using: the model's {name!r} has shape {shapes}")
    before = {name: own[name].detach().clone() for name in weights}
    try:
        _copy(own, weights)
        yield model
    finally:
        _copy(own, before)


@torch.no_grad()
def _copy(tensors: Weights, weights: Weights) -> None:
    for name, tensor in weights.items():
        tensors[name].copy_(tensor)


def losses_at(points: Iterable[Weights], model: nn.Module, loss: Loss) -> Float[Tensor, " points"]:
    """The loss of a model with other weights, one set after another; its own come back to the bit.

    Raises:
        ValueError: if the weights are of another model.

    Taught in: chapter 26.
    """
    losses = []
    for weights in points:
        with using(model, weights), torch.no_grad():
            losses.append(float(loss(model)))
    return torch.tensor(losses, dtype=torch.float64)


def trajectory_plane(snapshots: Sequence[Weights]) -> "Plane":
    r"""The plane of the first two principal components of a training run, through its end.

    $$\Theta_{t\cdot} = \theta_t - \theta_T, \qquad
    \Theta - \mathbf 1 \bar\theta^\top = U S V^\top, \qquad c_{tk} = (\theta_t - \theta_T)^\top v_k$$

    Principal components are those of centered differences, as in Li et al.; the share of component k is
    S_k² / Σ S². The shares of a long random walk in many dimensions, with steps of one size, are near
    6 / (π² k²), so that two components hold three quarters of it (Antognini and Sohl-Dickstein). The plane's
    axes have length one and point to the side where the run began.

    Args:
        snapshots: T + 1 sets of weights by name, in order; the last is the plane's origin. Tensors that are
            not of floating point are left out.

    Raises:
        ValueError: if there are fewer than three snapshots, they do not hold the same tensors, or they do not
            span a plane.

    References:
        Li et al., Visualizing the loss landscape of neural nets, 2018, section 7. Antognini and
        Sohl-Dickstein, PCA of high dimensional random walks with comparison to neural network training, 2018.
        Taught in: chapter 26.
    """
    if len(snapshots) < 3:
        raise ValueError(f"trajectory_plane: needs three snapshots or more, not {len(snapshots)}")
    shapes = [{name: tensor.shape for name, tensor in weights.items()} for weights in snapshots]
    if any(shape != shapes[0] for shape in shapes):
        raise ValueError("trajectory_plane: the snapshots do not hold the same tensors in the same shapes")
    names = [name for name, tensor in snapshots[-1].items() if tensor.is_floating_point()]
    gram = torch.zeros(len(snapshots), len(snapshots), dtype=torch.float64)
    for name in names:
        steps = differences(snapshots, name)
        gram += steps @ steps.T
    distances = gram.diagonal().clamp(min=0).sqrt()
    centered = gram - gram.mean(0) - gram.mean(1, keepdim=True) + gram.mean()
    squares, left = torch.linalg.eigh(centered)
    squares, left = squares.flip(0)[:-1].clamp(min=0), left.flip(1)[:, :-1]  # centering leaves a zero
    if not squares[1] > squares[0] * torch.finfo(torch.float64).eps * len(snapshots):
        raise ValueError("trajectory_plane: the snapshots lie on a line, or are all the same")
    scores = left * squares.sqrt()
    coordinates = scores - scores[-1]
    sign = torch.where(coordinates[0] < 0, -1.0, 1.0).double()
    lengths = squares[:2].sqrt()
    axes: tuple[dict[str, Tensor], dict[str, Tensor]] = ({}, {})
    for name in names:
        steps = differences(snapshots, name)
        parts = ((left[:, :2] * sign[:2] / lengths).T @ (steps - steps.mean(0))).reshape(2, *shapes[0][name])
        axes[0][name], axes[1][name] = parts
    origin = {name: snapshots[-1][name].detach().clone() for name in names}
    return Plane(origin, axes, coordinates * sign, squares / squares.sum(), distances)


def differences(snapshots: Sequence[Weights], name: str) -> Tensor:
    """``[steps size]``: how far a tensor is from where it ends."""
    stacked = torch.stack([weights[name].detach().flatten() for weights in snapshots]).double().cpu()
    return stacked - stacked[-1]


def loss_on(
    plane: "Plane", model: nn.Module, loss: Loss, *, points: int = 21, span: float | None = None
) -> "Surface":
    r"""The loss at the points of a grid on a plane.

    $$f(\alpha, \beta) = L(\theta + \alpha u + \beta v)$$

    Args:
        plane: θ, u and v.
        model: whose weights are moved, and put back to the bit.
        loss: of the model, the same whenever it is called: fixed data, nothing random.
        points: along each axis.
        span: the grid reaches from −span to span, with the origin in its middle where ``points`` is odd. None
            is the square around a trajectory with a quarter of its side left on each side, or one.

    Raises:
        ValueError: if there are fewer than two points, the span is not positive, or the plane is of another
            model.

    Taught in: chapter 26.
    """
    if points < 2 or (span is not None and not span > 0):
        raise ValueError(f"loss_on: points must be two or more and span positive, not {points} and {span}")
    first, second = plane.ticks(points, span)
    grid = (plane.at(alpha, beta) for alpha in first.tolist() for beta in second.tolist())
    return Surface(first, second, losses_at(grid, model, loss).reshape(points, points))


@final
@dataclass(frozen=True)
class Plane:
    """Two directions through a point in the space of weights.

    Args:
        origin: the point, by name.
        axes: the two directions, in float64.
        coordinates: ``[steps components]``, where the snapshots of a trajectory lie along all its principal
            components, as seen from the last; the first two are the plane's.
        explained: ``[components]``, each component's share of the trajectory's variance.
        distances: ``[steps]``, how far each snapshot is from the last. What is more than its coordinates in
            the plane is off the plane: the surface shows the loss of its shadow, not its own.

    Taught in: chapter 26.
    """

    origin: dict[str, Tensor]
    axes: tuple[dict[str, Tensor], dict[str, Tensor]]
    coordinates: Float[Tensor, "steps components"]
    explained: Float[Tensor, " components"]
    distances: Float[Tensor, " steps"]

    def at(self, alpha: float, beta: float) -> dict[str, Tensor]:
        """The weights at a point of the plane, in the origin's types; (0, 0) is the origin to the bit."""
        first, second = self.axes
        return {
            name: (tensor.double().cpu() + alpha * first[name] + beta * second[name]).to(tensor)
            for name, tensor in self.origin.items()
        }

    def ticks(self, points: int, span: float | None = None) -> tuple[Tensor, Tensor]:
        """The coordinates of a grid's points along the two axes."""
        if span is None and len(self.coordinates):
            low, high = self.coordinates[:, :2].amin(0), self.coordinates[:, :2].amax(0)
            middle, reach = (low + high) / 2, 0.75 * (high - low).max()
        else:
            middle, reach = torch.zeros(2, dtype=torch.float64), span or 1.0
        around = torch.linspace(-1, 1, points, dtype=torch.float64) * reach
        return middle[0] + around, middle[1] + around


@final
@dataclass(frozen=True)
class Surface:
    """Losses over a grid: ``losses[i, j]`` at ``first[i]`` along one axis and ``second[j]`` along the other.

    Taught in: chapter 26.
    """

    first: Float[Tensor, " i"]
    second: Float[Tensor, " j"]
    losses: Float[Tensor, "i j"]

    def minima(self) -> int:
        """How many points inside the grid are below all eight around them."""
        inner = self.losses[1:-1, 1:-1]
        rows, columns = self.losses.shape
        around = [
            self.losses[i : rows - 2 + i, j : columns - 2 + j]
            for i in range(3)
            for j in range(3)
            if (i, j) != (1, 1)
        ]
        return int((inner < torch.stack(around).amin(0)).sum())
