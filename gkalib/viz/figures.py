"""The figures of a trained model: the GKA paper's of attention, KArAt's of spectra and of the loss."""

import math
from collections.abc import Sequence
from contextlib import suppress

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor, nn

from gkalib.analysis import spectrum
from gkalib.analysis.capture import Captured
from gkalib.analysis.landscape import Plane, Surface
from gkalib.analysis.measures import bandwidths, banks, magnitudes, received
from gkalib.analysis.metrics import DISCARDS
from gkalib.analysis.rollout import MOST, class_row, patch_grid, patch_rows, rollout, subsample
from gkalib.kernels import DecayingPeriodicBank
from gkalib.models import ViT
from gkalib.shapes import Weights
from gkalib.viz import maps, style
from gkalib.viz.digest import array

Shares = Sequence[Weights]
"""Of each layer, ``[1 h n n]``, zero or more: ``magnitudes`` of the weights captured of one item."""


def attention_figures(
    model: nn.Module, captured: Sequence[Captured], *, picture=None, tokens: Sequence[str] = ()
) -> dict[str, Figure]:
    """The figures of the GKA paper's section 7 for one picture, and their counterparts for one text, by name.

    Where weights have signs, maps and flows are of their absolute values; the matrices keep them.

    Args:
        model: whose attention it is.
        captured: what ``capture_attention`` gave for a batch of one.
        picture: of a vision transformer, what maps lie over, as for ``maps.overlay``.
        tokens: of a model of text, what to write below figures; registers included.

    Taught in: chapter 25.
    """
    shares = [magnitudes(layer.weights) for layer in captured]
    figures: dict[str, Figure] = {}
    if isinstance(model, ViT):
        figures["rollout"] = rollouts(picture, model, shares)
        figures["evolution"] = evolution(picture, model, shares)
        for index, layer in enumerate(shares):
            figures[f"class-layer{index}"] = class_maps(picture, model, layer)
            figures[f"patches-layer{index}"] = patch_maps(picture, model, layer)
    else:
        figures["last-rows"] = last_rows(tokens, shares)
        figures["sinks"] = sinks(shares)
        if kernels := banks(model):
            figures["banks"] = bank_figure(kernels, shares[0].shape[-1])
    for index, layer in enumerate(captured):
        # Neighbors of a patch are anywhere in the order, those of a token beside it: these are not thinned.
        shown = layer.weights if isinstance(model, ViT) else layer.weights[..., -MOST:, -MOST:]
        figures[f"matrices-layer{index}"] = matrices(shown)
    with suppress(ValueError):  # a variant without bandwidths has no such figure
        figures["bandwidths"] = bandwidth_figure(bandwidths(model))
    return figures


def spectrum_figures(
    model: nn.Module,
    attention: Sequence[Weights],
    landscape: tuple[Plane, Surface] | None = None,
) -> dict[str, Figure]:
    """The figures of KArAt's section 5.2 for one model: ``spectra``, ``histograms``, and ``landscape``.

    Args:
        model: the trained model.
        attention: the weights of each layer, ``[b h n m]``.
        landscape: the plane of its training and the loss on it, where there is one.

    References:
        Maity et al., Kolmogorov–Arnold attention, 2025, figures 6 to 8. Taught in: chapter 26.
    """
    figures = {"spectra": spectra(model, attention), "histograms": histograms(model)}
    if landscape:
        figure, (left, right) = _row(2, height=3.2, widths=(3, 2))
        contours(left, *landscape)
        component_shares(right, landscape[0])
        figures["landscape"] = figure
    return figures


def bandwidth_lines(axes: Axes, sigma) -> None:
    """Draw σ against depth, one line a head.

    Args:
        axes: where to draw.
        sigma: ``[layers heads]``.

    References:
        Kundu et al., Gaussian Kernel Attention, 2026, section 7.3. Taught in: chapter 25.
    """
    sigma = array(sigma)
    colors = list(style.PALETTE.values())
    for head in range(sigma.shape[1]):
        axes.plot(sigma[:, head], marker="o", color=colors[head % len(colors)], label=f"head {head}")
    axes.set(xlabel="layer", ylabel="bandwidth σ", xticks=range(sigma.shape[0]))


def rollouts(picture, model: ViT, shares: Shares) -> Figure:
    """The picture, and the class token's row of rollout over it at each of the paper's three discards.

    Args:
        picture: as for ``maps.overlay``.
        model: says where the class token and the patches stand.
        shares: of all layers.

    References:
        Kundu et al., Gaussian Kernel Attention, 2026, section 7.2. Taught in: chapter 25.
    """
    figure, panels = _row(1 + len(DISCARDS))
    panels[0].imshow(picture, cmap="gray")
    panels[0].set(title="picture", xticks=[], yticks=[])
    for axes, discard in zip(panels[1:], DISCARDS, strict=True):
        flow = class_row(model, rollout(shares, discard=discard))[0]
        maps.overlay(axes, picture, patch_grid(flow), title=f"discard {discard:g}")
    return figure


def bandwidth_figure(sigma: Float[Tensor, "layers heads"]) -> Figure:
    """Bandwidths as the paper's heat map, heads down and layers across, and as lines over depth.

    References:
        Kundu et al., Gaussian Kernel Attention, 2026, section 7.3. Taught in: chapter 25.
    """
    figure, (left, right) = _row(2, height=2.8)
    image = left.imshow(array(sigma).T, cmap="YlOrRd", aspect="auto")
    left.set(xlabel="layer", ylabel="head", xticks=range(sigma.shape[0]), yticks=range(sigma.shape[1]))
    figure.colorbar(image, ax=left, label="σ")
    bandwidth_lines(right, sigma)
    right.legend()
    return figure


def class_maps(picture, model: ViT, shares: Weights) -> Figure:
    """One layer: how much of each patch the class token takes, head by head.

    References:
        Kundu et al., Gaussian Kernel Attention, 2026, section 7.4, equation 14. Taught in: chapter 25.
    """
    rows = class_row(model, shares[0])
    figure, panels = _row(len(rows))
    for head, (axes, row) in enumerate(zip(panels, rows, strict=True)):
        maps.overlay(axes, picture, patch_grid(row), title=f"head {head}")
    return figure


def patch_maps(picture, model: ViT, shares: Weights) -> Figure:
    """One layer: how much of each patch four patches take, in the mean over heads, plain and as overlays.

    References:
        Kundu et al., Gaussian Kernel Attention, 2026, section 7.5, equation 15. Taught in: chapter 25.
    """
    rows = patch_rows(model, shares)
    figure, axes = _grid(2, len(rows))
    for column, (name, (place, row)) in enumerate(rows.items()):
        image = axes[0][column].imshow(row.numpy(), cmap=maps.HEAT, vmin=0.0)
        axes[0][column].set(title=name, xticks=[], yticks=[])
        corner = place[1] - 0.5, place[0] - 0.5
        frame = Rectangle(corner, 1, 1, fill=False, color=style.PALETTE["sky"], linewidth=1.5)
        axes[0][column].add_patch(frame)
        figure.colorbar(image, ax=axes[0][column], shrink=0.7)
        maps.overlay(axes[1][column], picture, row, query=place)
    return figure


def evolution(picture, model: ViT, shares: Shares) -> Figure:
    """A row a layer: the mean matrix over heads, the class token's map, and the same over the picture.

    References:
        Kundu et al., Gaussian Kernel Attention, 2026, section 7.6. Taught in: chapter 25.
    """
    figure, axes = _grid(len(shares), 3)
    for index, layer in enumerate(shares):
        mean = layer[0].mean(0)
        maps.weights(axes[index][0], mean, title=f"layer {index}")
        row = patch_grid(class_row(model, mean))
        axes[index][1].imshow(row.numpy(), cmap=maps.HEAT, vmin=0.0)
        axes[index][1].set(xticks=[], yticks=[])
        maps.overlay(axes[index][2], picture, row)
    return figure


def matrices(weights: Weights) -> Figure:
    """One layer: each head's matrix with the diagonal set to zero, thinned to 50 tokens where it has more.

    Args:
        weights: ``[1 h n n]``, with their signs.

    References:
        Kundu et al., Gaussian Kernel Attention, 2026, section 7.7. Taught in: chapter 25.
    """
    figure, panels = _row(weights.shape[1], height=2.4)
    for head, axes in enumerate(panels):
        image = maps.weights(axes, maps.off_diagonal(subsample(weights[0, head])[0]), title=f"head {head}")
        axes.set_aspect("equal")
        figure.colorbar(image, ax=axes, orientation="horizontal", shrink=0.9)
    return figure


def last_rows(tokens: Sequence[str], shares: Shares) -> Figure:
    """A text: the last token's weights on all tokens, a line for each layer and head.

    Args:
        tokens: what to write below; registers included.
        shares: of all layers.

    Taught in: chapter 25.
    """
    rows = torch.cat([layer[0, :, -1] for layer in shares])
    figure = Figure(figsize=(style.COLUMN, 1.2 + 0.14 * len(rows)), layout="constrained")
    axes = figure.subplots()
    maps.weights(axes, rows, title="weights of the last token")
    heads = shares[0].shape[1]
    axes.set_yticks(range(0, len(rows), heads), [f"layer {index}" for index in range(len(shares))])
    axes.set_xticks(range(len(tokens)), tokens, fontsize=5)
    axes.set(ylabel="layer and head")
    return figure


def sinks(shares: Shares) -> Figure:
    """What each token receives, a panel a layer and a line a head; 1 is an equal share.

    Args:
        shares: of all layers.

    Taught in: chapter 25.
    """
    figure, panels = _row(len(shares), height=2.4)
    for index, (axes, layer) in enumerate(zip(panels, shares, strict=True)):
        for row in received(layer)[0]:
            axes.semilogy(row.clamp_min(1e-4).numpy(), linewidth=1)
        axes.set(title=f"layer {index}", xlabel="token")
    panels[0].set_ylabel("received, 1 is equal")
    return figure


def bank_figure(kernels: Sequence[DecayingPeriodicBank], length: int) -> Figure:
    """G, what the banks add to the logarithm of the weight, over the lag: a panel a layer and a line a head.

    References:
        Gaussian Process Attention with Kernel Modeling, equations 3 to 6. Taught in: chapter 25.
    """
    figure, panels = _row(len(kernels), height=2.4)
    colors = list(style.PALETTE.values())
    for index, (axes, kernel) in enumerate(zip(panels, kernels, strict=True)):
        for head, row in enumerate(array(kernel.lag_table(length))):
            axes.plot(row, color=colors[head % len(colors)])
        axes.set(title=f"layer {index}", xlabel="lag (tokens)", ylabel="G" if index == 0 else "")
    return figure


def contours(axes: Axes, plane: Plane, surface: Surface) -> None:
    """Draw a surface as contours of the loss's logarithm, with the trajectory's shadow from o to ×.

    Taught in: chapter 26.
    """
    losses = surface.losses.clamp(min=torch.finfo(torch.float64).tiny).log10()
    filled = axes.contourf(surface.first, surface.second, losses.T, levels=12, cmap=style.SEQUENTIAL)
    axes.get_figure(root=True).colorbar(filled, ax=axes, label="log₁₀ loss")  # pyright: ignore
    path = plane.coordinates[:, :2]
    if len(path):
        axes.plot(path[:, 0], path[:, 1], color=style.PALETTE["vermilion"], linewidth=1.2)
        axes.plot(*path[0], "o", color=style.PALETTE["vermilion"])
    axes.plot(0, 0, "x", color=style.PALETTE["vermilion"], markersize=7, markeredgewidth=2)
    axes.set(xlabel="first axis", ylabel="second axis", aspect="equal")


def component_shares(axes: Axes, plane: Plane) -> None:
    """Draw how much of a trajectory each of eight components holds, beside a random walk's 6 / (π² k²).

    Taught in: chapter 26.
    """
    explained = plane.explained[:8]
    number = torch.arange(1, len(explained) + 1)
    axes.semilogy(number, explained, "o-", label="this run")
    axes.semilogy(number, 6 / (math.pi * number) ** 2, "--", color="gray", label="random walk")
    axes.set(xlabel="component", ylabel="share of variance", xticks=number.tolist())
    axes.legend()


def spectra(model: nn.Module, attention: Sequence[Weights]) -> Figure:
    """The singular values of each layer's attention, and the effective ranks of the weight matrices.

    References:
        Maity et al., Kolmogorov–Arnold attention, 2025, figure 7. Taught in: chapter 29.
    """
    figure, (left, right) = _row(2, height=3.2)
    for number, weights in enumerate(attention):
        values = spectrum.spectrum(weights)
        # What rounding leaves of a matrix of low rank would stretch the axis over twenty decades.
        shown = values >= values[0] - math.log(1e8)
        left.plot(torch.arange(1, len(values) + 1)[shown], values[shown], label=f"layer {number}")
    left.set(xlabel="index i", ylabel="log of the mean σᵢ", title="attention")
    left.legend()
    ranks: dict[str, list[float]] = {}
    for name, matrix in spectrum.matrices(dict(model.named_parameters())).items():
        values = spectrum.singular_values(matrix)
        ranks.setdefault(spectrum.kind(name), []).append(
            (spectrum.effective_rank(values) / len(values)).item()
        )
    for row, each in enumerate(ranks.values()):
        right.plot(each, [row] * len(each), "o", color=style.PALETTE["blue"], alpha=0.6)
    right.set(xlabel="effective rank / largest rank", title="weight matrices", xlim=(0, 1.03))
    right.set_yticks(range(len(ranks)), list(ranks))
    return figure


def histograms(model: nn.Module) -> Figure:
    """How the parameters are spread, a panel a kind, out to its largest magnitude.

    References:
        Maity et al., Kolmogorov–Arnold attention, 2025, figure 6. Taught in: chapter 29.
    """
    by_kind: dict[str, list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        by_kind.setdefault(spectrum.kind(name), []).append(parameter.detach().double().cpu().flatten())
    columns = 4
    rows = math.ceil(len(by_kind) / columns)
    figure = Figure(figsize=(style.COLUMN, 1.5 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (name, parts) in zip(panels, by_kind.items(), strict=False):
        values = torch.cat(parts)
        reach = values.abs().max().item() or 1.0
        axes.hist(values, bins=61, range=(-reach, reach), density=True, histtype="stepfilled")
        axes.set_title(f"{name} ({len(values):,})", fontsize=8)
        axes.set_yticks([])
        axes.tick_params(labelsize=7)
    for axes in panels[len(by_kind) :]:
        axes.set_axis_off()
    return figure


def _row(count: int, *, height: float = 2.0, widths: Sequence[int] | None = None):
    """A figure of so many axes side by side, as wide as the column or wider."""
    figure = Figure(figsize=(max(style.COLUMN, 1.9 * count), height), layout="constrained")
    return figure, figure.subplots(1, count, squeeze=False, width_ratios=widths)[0]


def _grid(rows: int, columns: int):
    figure = Figure(figsize=(style.COLUMN, style.COLUMN / columns * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)
