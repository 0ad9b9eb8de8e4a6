"""A trained model from outside: its spectra, the spread of its weights, the loss around it."""

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from gkalib.viz import style
from gkalib.viz.landscape import Plane, Surface, loss_on, trajectory_plane
from gkalib.viz.spectrum import (
    effective_rank,
    histogram,
    kind,
    matrices,
    singular_values,
    spectrum,
)

Attention = Sequence[Float[Tensor, "b h n m"]]
Weights = Mapping[str, Tensor]


def metrics(model: nn.Module, attention: Attention, snapshots: Sequence[Weights] = ()) -> dict[str, float]:
    """The numbers of the figures: effective ranks, and how much of a trajectory its plane holds.

    ``attention_rank_L`` is the mean effective rank of layer L's weights, over pictures and heads,
    ``KIND_rank`` that of the matrices of one kind, ``explained_K`` the share of the trajectory's K-th
    component. Layers count from 0, components from 1.

    Args:
        model: the trained model.
        attention: the weights of each layer.
        snapshots: of its training, in order.

    Taught in: chapter 24.
    """
    found = {
        f"attention_rank_{number}": effective_rank(singular_values(one)).mean().item()
        for number, one in enumerate(attention)
    }
    ranks: dict[str, list[float]] = {}
    for name, matrix in matrices(dict(model.named_parameters())).items():
        ranks.setdefault(kind(name), []).append(effective_rank(singular_values(matrix)).item())
    found |= {f"{name.replace(' ', '_')}_rank": sum(each) / len(each) for name, each in ranks.items()}
    if snapshots:
        shares = trajectory_plane(snapshots).explained[:3]
        found |= {f"explained_{number}": share for number, share in enumerate(shares.tolist(), start=1)}
    return found


def figures(
    model: nn.Module,
    attention: Attention,
    snapshots: Sequence[Weights] = (),
    loss: Callable[[nn.Module], Tensor] | None = None,
    *,
    points: int = 15,
) -> dict[str, Figure]:
    """The figures of KArAt's section 5.2 for one model: ``spectra``, ``histograms``, and ``landscape``.

    Args:
        model: the trained model; it is left as it was.
        attention: the weights of each layer, ``[b h n m]``.
        snapshots: of its training, in order; without them, or without a loss, there is no ``landscape``.
        loss: of the model, the same whenever it is called.
        points: along each axis of the landscape.

    References:
        Maity et al., Kolmogorov–Arnold attention, 2025, figures 6 to 8. Taught in: chapter 24.
    """
    made = {"spectra": _spectra(model, attention), "histograms": _histograms(model)}
    if snapshots and loss is not None:
        plane = trajectory_plane(snapshots)
        figure = Figure(figsize=(style.COLUMN, 3.2), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(3, 2))
        landscape(left, plane, loss_on(plane, model, loss, points=points))
        shares(right, plane)
        made["landscape"] = figure
    return made


def landscape(axes: Axes, plane: Plane, surface: Surface, *, levels: int = 12) -> None:
    """Draw a surface as contours of the loss's logarithm, with the trajectory's shadow from o to ×.

    Taught in: chapter 24.
    """
    losses = surface.losses.clamp(min=torch.finfo(torch.float64).tiny).log10()
    drawn = axes.contourf(surface.first, surface.second, losses.T, levels=levels, cmap=style.SEQUENTIAL)
    axes.get_figure(root=True).colorbar(drawn, ax=axes, label="log₁₀ loss")  # pyright: ignore
    path = plane.coordinates[:, :2]
    if len(path):
        axes.plot(path[:, 0], path[:, 1], color=style.PALETTE["vermilion"], linewidth=1.2)
        axes.plot(*path[0], "o", color=style.PALETTE["vermilion"])
    axes.plot(0, 0, "x", color=style.PALETTE["vermilion"], markersize=7, markeredgewidth=2)
    axes.set(xlabel="first axis", ylabel="second axis", aspect="equal")


def shares(axes: Axes, plane: Plane, *, count: int = 8) -> None:
    """Draw how much of a trajectory each component holds, beside a random walk's 6 / (π² k²).

    Taught in: chapter 24.
    """
    explained = plane.explained[:count]
    number = torch.arange(1, len(explained) + 1)
    axes.semilogy(number, explained, "o-", label="this run")
    axes.semilogy(number, 6 / (math.pi * number) ** 2, "--", color="gray", label="random walk")
    axes.set(xlabel="component", ylabel="share of variance", xticks=number.tolist())
    axes.legend()


def _spectra(model: nn.Module, attention: Attention) -> Figure:
    figure = Figure(figsize=(style.COLUMN, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for number, one in enumerate(attention):
        values = spectrum(one)
        # What rounding leaves of a matrix of low rank would stretch the axis over twenty decades.
        shown = values >= values[0] - math.log(1e8)
        left.plot(torch.arange(1, len(values) + 1)[shown], values[shown], label=f"layer {number}")
    left.set(xlabel="index i", ylabel="log of the mean σᵢ", title="attention")
    left.legend()
    ranks: dict[str, list[float]] = {}
    for name, matrix in matrices(dict(model.named_parameters())).items():
        values = singular_values(matrix)
        ranks.setdefault(kind(name), []).append((effective_rank(values) / len(values)).item())
    for row, each in enumerate(ranks.values()):
        right.plot(each, [row] * len(each), "o", color=style.PALETTE["blue"], alpha=0.6)
    right.set(xlabel="effective rank / largest rank", title="weight matrices", xlim=(0, 1.03))
    right.set_yticks(range(len(ranks)), list(ranks))
    return figure


def _histograms(model: nn.Module) -> Figure:
    found = histogram(dict(model.named_parameters()))
    columns = 4
    rows = math.ceil(len(found) / columns)
    figure = Figure(figsize=(style.COLUMN, 1.5 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (name, one) in zip(panels, found.items(), strict=False):
        axes.stairs(one.density, one.edges, fill=True)
        axes.set_title(f"{name} ({one.size:,})", fontsize=8)
        axes.set_yticks([])
        axes.tick_params(labelsize=7)
    for axes in panels[len(found) :]:
        axes.set_axis_off()
    return figure
