"""What a training run is compared with: planes at random, and random walks with their shares of variance."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from gkalib.analysis.landscape import Plane, Weights, differences

SCALES = ("filter", "unit")


def random_walk(steps: int, size: int, *, seed: int) -> list[dict[str, Tensor]]:
    r"""A random walk from zero in ``size`` dimensions, as snapshots.

    $$\theta_t = \theta_{t-1} + \epsilon_t, \qquad \epsilon_t \sim \mathcal N(0, I)$$

    Taught in: chapter 26.
    """
    generator = torch.Generator().manual_seed(seed)
    moves = torch.randn(steps, size, generator=generator, dtype=torch.float64)
    path = torch.cat([torch.zeros(1, size, dtype=torch.float64), moves.cumsum(0)])
    return [{"weights": row} for row in path]


def walk_shares(lengths: Float[Tensor, " steps"]) -> Float[Tensor, " steps"]:
    r"""The shares of variance of a walk whose steps have given lengths and are orthogonal to each other.

    $$G_{st} = \sum_{i \le \min(s, t)} \ell_i^2, \qquad
    \text{share}_k = \frac{\lambda_k(J G J)}{\operatorname{tr} J G J}, \qquad
    J = I - \tfrac{1}{T + 1} \mathbf 1 \mathbf 1^\top$$

    Independent steps are nearly orthogonal in many dimensions, so that this is what a run's own steps would
    give in directions drawn at random. For T equal steps share k is 6 / ((n² − 1) · 4 sin²(πk / 2n)) with
    n = T + 1, and 6 / (π² k²) in the limit.

    Args:
        lengths: ``[T]``, ℓ: the distances of successive snapshots, such as ``step_lengths`` gives.

    Raises:
        ValueError: if no length is above zero.

    References:
        Antognini and Sohl-Dickstein, PCA of high dimensional random walks with comparison to neural network
        training, 2018. Taught in: chapter 26.
    """
    if not bool((lengths > 0).any()):
        raise ValueError("walk_shares: a walk needs a step with a length above zero")
    done = torch.cat([lengths.new_zeros(1), lengths.double().square().cumsum(0)])
    gram = torch.minimum(done, done[:, None])
    centered = gram - gram.mean(0) - gram.mean(1, keepdim=True) + gram.mean()
    values = torch.linalg.eigvalsh(centered).flip(0)[:-1].clamp(min=0)  # centering leaves a zero
    return values / values.sum()


def step_lengths(snapshots: Sequence[Weights]) -> Float[Tensor, " steps"]:
    """The distances of successive snapshots, ``[T]`` for T + 1 of them.

    Taught in: chapter 26.
    """
    return _products(snapshots).diagonal().clamp(min=0).sqrt()


def step_cosine(snapshots: Sequence[Weights]) -> float:
    """The mean cosine between successive differences of snapshots: near 0 for a walk, 1 for a straight line.

    Raises:
        ValueError: if there are fewer than three snapshots, or two successive ones are equal.

    Taught in: chapter 26.
    """
    products = _products(snapshots)
    lengths = products.diagonal().clamp(min=0).sqrt()
    if len(lengths) < 2 or not bool((lengths > 0).all()):
        raise ValueError("step_cosine: needs three snapshots or more, each different from the one before")
    return (products.diagonal(1) / (lengths[1:] * lengths[:-1])).mean().item()


def persistent_shares(snapshots: Sequence[Weights]) -> Float[Tensor, " steps"]:
    r"""The shares of a walk with a run's step lengths and, for each k, its mean cosine of steps k apart.

    $$\langle e_s, e_t \rangle = \ell_s \ell_t\, c_{|s - t|}$$

    The walk takes its cosines from the run: for a run that lies in a plane and turns evenly, it lies in that
    plane too. So agreement shows that mean cosines describe the run, and nothing for or against a plane;
    ``walk_shares`` is the comparison that can fail.

    Args:
        snapshots: T + 1 sets of weights by name, in order.

    Raises:
        ValueError: if two successive snapshots are equal.

    Taught in: chapter 26.
    """
    products = _products(snapshots)
    lengths = products.diagonal().clamp(min=0).sqrt()
    if not bool((lengths > 0).all()):
        raise ValueError("persistent_shares: two successive snapshots are equal")
    cosines = products / (lengths * lengths[:, None])
    mean = torch.stack([cosines.diagonal(apart).mean() for apart in range(len(lengths))])
    place = torch.arange(len(lengths))
    inner = torch.zeros(len(lengths) + 1, len(lengths) + 1, dtype=torch.float64)
    kept = lengths * lengths[:, None] * mean[(place - place[:, None]).abs()]
    inner[1:, 1:] = kept.cumsum(0).cumsum(1)
    centered = inner - inner.mean(0) - inner.mean(1, keepdim=True) + inner.mean()
    return torch.linalg.eigvalsh(centered).flip(0)[:-1] / centered.trace()


def _products(snapshots: Sequence[Weights]) -> Tensor:
    """The inner products of successive differences, ``[T T]``."""
    products = torch.zeros(len(snapshots) - 1, len(snapshots) - 1, dtype=torch.float64)
    for name, tensor in snapshots[-1].items():
        if tensor.is_floating_point():
            steps = differences(snapshots, name).diff(dim=0)
            products += steps @ steps.T
    return products


def random_plane(weights: Weights, *, seed: int, scale: str = "filter") -> Plane:
    r"""A plane through some weights along two random directions.

    $$d_{ij} \leftarrow \frac{d_{ij}}{\|d_{ij}\|} \|\theta_{ij}\|, \qquad d \sim \mathcal N(0, I)$$

    Args:
        weights: the origin, by name.
        seed: of the draws.
        scale: ``"filter"`` gives each filter of a direction, a slice along a tensor's first axis, the length
            of the weights' own, and leaves tensors with less than two axes where they are, as Li et al. do; a
            step of one is then as long as the weights. ``"unit"`` draws over all numbers alike and makes two
            orthogonal axes of length one, the units of a trajectory's plane.

    Raises:
        ValueError: if the scale is unknown, or there is no tensor to move.

    References:
        Li et al., Visualizing the loss landscape of neural nets, 2018, section 4. Taught in: chapter 26.
    """
    if scale not in SCALES:
        raise ValueError(f"random_plane: scale must be one of {', '.join(SCALES)}, not {scale!r}")
    moved = {name: tensor.detach() for name, tensor in weights.items() if tensor.is_floating_point()}
    if not any(tensor.ndim > 1 for tensor in moved.values()) and scale == "filter":
        raise ValueError("random_plane: no tensor has filters; it needs one with two axes or more")
    generator = torch.Generator().manual_seed(seed)
    first, second = (
        {name: torch.randn(t.shape, generator=generator, dtype=torch.float64) for name, t in moved.items()}
        for _ in range(2)
    )
    if scale == "filter":
        first, second = ({n: _filtered(axis[n], moved[n]) for n in moved} for axis in (first, second))
    else:
        first = _unit(first)
        along = _inner(first, second)
        second = _unit({name: second[name] - along * first[name] for name in moved})
    none = torch.zeros(0, dtype=torch.float64)
    origin = {name: tensor.clone() for name, tensor in moved.items()}
    return Plane(origin, (first, second), none.reshape(0, 0), none, none)


def _filtered(direction: Tensor, weights: Tensor) -> Tensor:
    if weights.ndim < 2:
        return torch.zeros_like(direction)
    rows, own = direction.flatten(1), weights.double().cpu().flatten(1)
    return (rows / rows.norm(dim=1, keepdim=True) * own.norm(dim=1, keepdim=True)).reshape(weights.shape)


def _inner(first: Weights, second: Weights) -> Tensor:
    return torch.stack([(first[name] * second[name]).sum() for name in first]).sum()


def _unit(axis: Weights) -> dict[str, Tensor]:
    return {name: tensor / _inner(axis, axis) ** 0.5 for name, tensor in axis.items()}
