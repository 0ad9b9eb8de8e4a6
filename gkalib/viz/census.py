"""The numbers of a look at a model, by the names that they have in records."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gkalib.layers import attention
from gkalib.models import ViT
from gkalib.viz.bandwidths import bandwidths
from gkalib.viz.layers import Layer, magnitudes, measures, received
from gkalib.viz.occlusion import agreement, occlusion, residual_share, saliency
from gkalib.viz.rollout import rollout

DISCARDS = (0.0, 0.5, 0.9)
"""The GKA paper's three."""


def census(model: nn.Module, found: Sequence[Layer]) -> dict[str, float]:
    """Every measure of ``measures`` for each layer and head, and σ where there is one.

    Args:
        model: what was looked at.
        found: what ``layers`` gave.

    Returns:
        By ``<measure>_<layer>_<head>``, counted from 0. Of a vision transformer also ``token``, the share of
        all rows that the class token receives, ``register<r>`` likewise, and ``patch``, that of the patch
        that receives most in an item.

    Taught in: chapter 23.
    """
    numbers: dict[str, float] = {}
    registers, extra = (model.config.registers, model.config.extra) if isinstance(model, ViT) else (0, 0)
    for index, layer in enumerate(found):
        by_head = measures(layer.weights, token=registers if extra > registers else None)
        share = received(layer.weights) / layer.weights.shape[-1]
        if extra:
            by_head["patch"] = share[..., extra:].amax(-1).mean(0)
        for register in range(registers):
            by_head[f"register{register}"] = share[..., register].mean(0)
        for name, values in by_head.items():
            numbers |= {f"{name}_{index}_{head}": value.item() for head, value in enumerate(values)}
    return numbers | _named("sigma", _bandwidths(model))


def agreements(
    model: ViT,
    images: Float[Tensor, "b channels height width"],
    labels: Int[Tensor, " b"],
    found: Sequence[Layer],
) -> dict[str, float]:
    """How far maps of patches agree with what the model loses with a patch.

    Args:
        model: a vision transformer.
        images, labels: the pictures that it was looked at with.
        found: what ``layers`` gave on them.

    Returns:
        The mean rank correlation with the size of ``occlusion``, and beside it ``…_error``, of
        ``class_row`` of rollout, by discard (``rollout_occlusion_50``), of that of the last layer
        (``last_occlusion``) and of the size of ``saliency`` (``saliency_occlusion``). Of rollout with the
        layers in the other order (``reversed_occlusion``) and with ``residual_share`` for the residual
        (``measured_occlusion``). And of two maps that do not look at the picture: another picture's rollout
        (``other_occlusion``) and the mean occlusion of all (``mean_occlusion``). Nothing where a token cannot
        be taken out: where the attention is made for a number of tokens, or counts them.

    Taught in: chapter 23.
    """
    if any(problem.kernel.of_lag for layer in found for problem in layer.problems):
        return {}
    if any(getattr(attention(name), "sized", False) for layer in found for name in layer.variants):
        return {}  # of these some would answer: Linformer's columns then belong to other patches
    try:
        truth = occlusion(model, images, labels).abs()
    except ValueError:  # a grid of patches, or positions: the model says so in its own words
        return {}
    shares = [magnitudes(layer.weights) for layer in found]
    rows = {
        f"rollout_occlusion_{100 * discard:02.0f}": class_row(model, rollout(shares, discard=discard))
        for discard in DISCARDS
    }
    measured = residual_share(model, images).tolist()
    rows |= {
        "last_occlusion": class_row(model, shares[-1].mean(1)),
        "saliency_occlusion": saliency(model, images, labels).abs(),
        "reversed_occlusion": class_row(model, rollout(shares[::-1])),
        "measured_occlusion": class_row(model, rollout(shares, residual=measured)),
        "other_occlusion": rows["rollout_occlusion_00"].roll(1, 0),
        "mean_occlusion": truth.mean(0).expand_as(truth),
    }
    numbers = {}
    for name, maps in rows.items():
        numbers[name], numbers[f"{name}_error"] = agreement(maps, truth)
    return numbers


def residuals(model: ViT, images: Float[Tensor, "b channels height width"]) -> dict[str, float]:
    """``residual_share`` of each layer, as ``residual_<layer>``.

    Taught in: chapter 23.
    """
    return {f"residual_{index}": share.item() for index, share in enumerate(residual_share(model, images))}


def class_row(model: ViT, matrices: Float[Tensor, "*b n n"]) -> Float[Tensor, "*b patches"]:
    """What the head reads, of each patch: the class token's row, or else the mean over the patches' rows.

    Args:
        model: says where the class token and the patches stand; registers are left out.
        matrices: ``[… n n]``, weights or a flow.

    Taught in: chapter 23.
    """
    registers, extra = model.config.registers, model.config.extra
    patches = matrices[..., extra:]
    return patches[..., registers, :] if model.config.class_token else patches[..., extra:, :].mean(-2)


def _bandwidths(model: nn.Module) -> Tensor:
    """``bandwidths``, or none at all."""
    try:
        return bandwidths(model)
    except ValueError:
        return torch.full((0, 0), torch.nan)


def _named(name: str, table: Tensor) -> dict[str, float]:
    """The finite numbers of a table ``[layers heads]``."""
    return {
        f"{name}_{index}_{head}": value
        for index, row in enumerate(table.tolist())
        for head, value in enumerate(row)
        if value == value
    }
