"""The GKA paper's figures of attention, for a model of any variant: one picture, or one text, a figure."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from gkalib.kernels import DecayingPeriodicBank
from gkalib.models import ViT
from gkalib.shapes import Weights
from gkalib.viz import maps, style
from gkalib.viz.bandwidths import heat, lines
from gkalib.viz.bank import bank
from gkalib.viz.census import DISCARDS, class_row
from gkalib.viz.layers import received
from gkalib.viz.rollout import rollout

Shares = Sequence[Weights]
"""Of each layer, ``[1 h n n]``, zero or more: ``magnitudes`` of what ``layers`` found in one item."""


def rollouts(picture, model: ViT, shares: Shares) -> Figure:
    """The picture, and the class token's row of rollout over it at each of the paper's three discards.

    Args:
        picture: as for ``maps.overlay``.
        model: says where the class token and the patches stand.
        shares: of all layers.

    References:
        Kundu et al., Gaussian Kernel Attention, 2026, section 7.2. Taught in: chapter 23.
    """
    figure, axes = _row(1 + len(DISCARDS))
    axes[0].imshow(picture, cmap="gray")
    axes[0].set(title="picture", xticks=[], yticks=[])
    for one, discard in zip(axes[1:], DISCARDS, strict=True):
        flow = class_row(model, rollout(shares, discard=discard))[0]
        maps.overlay(one, picture, maps.grid(flow), title=f"discard {discard:g}")
    return figure


def sigmas(sigma: Float[Tensor, "layers heads"]) -> Figure:
    """Bandwidths as a heat map and as lines over depth.

    References:
        Kundu et al., Gaussian Kernel Attention, 2026, section 7.3. Taught in: chapter 23.
    """
    figure, (left, right) = _row(2, height=2.8)
    figure.colorbar(heat(left, sigma), ax=left, label="σ")
    lines(right, sigma)
    right.legend()
    return figure


def class_maps(picture, model: ViT, shares: Weights) -> Figure:
    """One layer: how much of each patch the class token takes, head by head.

    References:
        Kundu et al., Gaussian Kernel Attention, 2026, section 7.4, equation 14. Taught in: chapter 23.
    """
    rows = class_row(model, shares[0])
    figure, axes = _row(len(rows))
    for head, (one, row) in enumerate(zip(axes, rows, strict=True)):
        maps.overlay(one, picture, maps.grid(row), title=f"head {head}")
    return figure


def patch_maps(picture, model: ViT, shares: Weights) -> Figure:
    """One layer: how much of each patch four patches take, in the mean over heads, plain and as overlays.

    References:
        Kundu et al., Gaussian Kernel Attention, 2026, section 7.5, equation 15. Taught in: chapter 23.
    """
    found = patch_rows(model, shares)
    figure, axes = _grid(2, len(found))
    for column, (name, (place, row)) in enumerate(found.items()):
        image = axes[0][column].imshow(row.numpy(), cmap=maps.HEAT, vmin=0.0)
        axes[0][column].set(title=name, xticks=[], yticks=[])
        corner = place[1] - 0.5, place[0] - 0.5
        frame = Rectangle(corner, 1, 1, fill=False, color=style.PALETTE["sky"], linewidth=1.5)
        axes[0][column].add_patch(frame)
        figure.colorbar(image, ax=axes[0][column], shrink=0.7)
        maps.overlay(axes[1][column], picture, row, query=place)
    return figure


def patch_rows(model: ViT, shares: Weights) -> dict[str, tuple[tuple[int, int], Tensor]]:
    """By the name of a query patch: where it is, and its weights on all patches ``[P P]``, mean over heads.

    Args:
        model: says where the patches stand.
        shares: ``[1 h n n]`` of one layer.
    """
    extra = model.config.extra
    side = model.config.image_size // model.config.patch_size
    rows = shares[0].mean(0)[extra:, extra:]
    return {
        name: (place, maps.grid(rows[place[0] * side + place[1]]))
        for name, place in maps.queries(side).items()
    }


def evolution(picture, model: ViT, shares: Shares) -> Figure:
    """A row a layer: the mean matrix over heads, the class token's map, and the same over the picture.

    References:
        Kundu et al., Gaussian Kernel Attention, 2026, section 7.6. Taught in: chapter 23.
    """
    figure, axes = _grid(len(shares), 3)
    for index, layer in enumerate(shares):
        mean = layer[0].mean(0)
        maps.weights(axes[index][0], mean, title=f"layer {index}")
        row = maps.grid(class_row(model, mean))
        axes[index][1].imshow(row.numpy(), cmap=maps.HEAT, vmin=0.0)
        axes[index][1].set(xticks=[], yticks=[])
        maps.overlay(axes[index][2], picture, row)
    return figure


def matrices(weights: Weights) -> Figure:
    """One layer: each head's matrix with the diagonal set to zero, thinned to 50 tokens where it has more.

    Args:
        weights: ``[1 h n n]``, with their signs.

    References:
        Kundu et al., Gaussian Kernel Attention, 2026, section 7.7. Taught in: chapter 23.
    """
    figure, axes = _row(weights.shape[1], height=2.4)
    for head, one in enumerate(axes):
        image = maps.weights(
            one, maps.off_diagonal(maps.subsample(weights[0, head])[0]), title=f"head {head}"
        )
        figure.colorbar(image, ax=one, shrink=0.7)
    return figure


def last_rows(tokens: Sequence[str], shares: Shares) -> Figure:
    """A text: the last token's weights on all tokens, a line for each layer and head.

    Args:
        tokens: what to write below; registers included.
        shares: of all layers.

    Taught in: chapter 23.
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

    Taught in: chapter 23.
    """
    figure, axes = _row(len(shares), height=2.4)
    for index, (one, layer) in enumerate(zip(axes, shares, strict=True)):
        for row in received(layer)[0]:
            one.semilogy(row.clamp_min(1e-4).numpy(), linewidth=1)
        one.set(title=f"layer {index}", xlabel="token")
    axes[0].set_ylabel("received, 1 is equal")
    return figure


def banks(kernels: Sequence[DecayingPeriodicBank], length: int) -> Figure:
    """The banks of all layers over the lag, a panel a layer and a line a head.

    Taught in: chapter 23.
    """
    figure, axes = _row(len(kernels), height=2.4)
    for index, (one, kernel) in enumerate(zip(axes, kernels, strict=True)):
        bank(one, kernel, length)
        one.set(title=f"layer {index}", ylabel="G" if index == 0 else "")
    return figure


def _row(count: int, *, height: float = 2.0):
    """A figure of so many axes side by side, as wide as the column or wider."""
    figure = Figure(figsize=(max(style.COLUMN, 1.9 * count), height), layout="constrained")
    return figure, figure.subplots(1, count, squeeze=False)[0]


def _grid(rows: int, columns: int):
    figure = Figure(figsize=(style.COLUMN, style.COLUMN / columns * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)
