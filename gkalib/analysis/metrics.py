"""What a record keeps of a trained model: numbers by name, and maps as rows of a table."""

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor, nn

from gkalib.analysis.capture import Captured
from gkalib.analysis.landscape import Plane, Surface, trajectory_plane
from gkalib.analysis.measures import bandwidths, banks, magnitudes, measures, received
from gkalib.analysis.occlusion import agreement, occlusion, residual_share, saliency
from gkalib.analysis.rollout import class_row, patch_grid, patch_rows, rollout, subsample
from gkalib.analysis.spectrum import effective_rank, kind, matrices, singular_values
from gkalib.layers import Smoother
from gkalib.models import ViT
from gkalib.shapes import Weights

Row = dict[str, object]
DIGITS = 4
TOKENS = 17  # of the matrices kept, so that a record has no more than some ten thousand rows a dozen heads
DISCARDS = (0.0, 0.5, 0.9)
"""The GKA paper's three."""


def attention_metrics(model: nn.Module, captured: Sequence[Captured]) -> dict[str, float]:
    """Every measure of ``measures`` for each layer and head, and σ where there is one.

    Args:
        model: whose attention it is.
        captured: what ``capture_attention`` gave.

    Returns:
        By ``<measure>_<layer>_<head>``, counted from 0. Of a vision transformer also ``token``, the share of
        all rows that the class token receives, ``register<r>`` likewise, and ``patch``, that of the patch
        that receives most in an item.

    Taught in: chapter 25.
    """
    numbers: dict[str, float] = {}
    registers, extra = (model.config.registers, model.config.extra) if isinstance(model, ViT) else (0, 0)
    for index, layer in enumerate(captured):
        by_head = measures(layer.weights, token=registers if extra > registers else None)
        share = received(layer.weights) / layer.weights.shape[-1]
        if extra:
            by_head["patch"] = share[..., extra:].amax(-1).mean(0)
        for register in range(registers):
            by_head[f"register{register}"] = share[..., register].mean(0)
        for name, values in by_head.items():
            numbers |= {f"{name}_{index}_{head}": value.item() for head, value in enumerate(values)}
    return numbers | {f"sigma_{layer}_{head}": value for (layer, head), value in _sigmas(model).items()}


def of_heads(runs: Iterable[Mapping[str, float]], measure: str) -> np.ndarray:
    """The values of a measure for every run, layer and head, in one row.

    Args:
        runs: metrics of each, named as by ``attention_metrics``.
        measure: which.

    Raises:
        ValueError: if there are none.

    Taught in: chapter 25.
    """
    name = re.compile(rf"{re.escape(measure)}_\d+_\d+")
    values = [value for metrics in runs for key, value in metrics.items() if name.fullmatch(key)]
    if not values:
        raise ValueError(f"of_heads: no layer and head has a {measure!r}")
    return np.array(values)


def agreement_metrics(
    model: ViT,
    images: Float[Tensor, "b channels height width"],
    labels: Int[Tensor, " b"],
    captured: Sequence[Captured],
) -> dict[str, float]:
    """How far maps of patches agree with what the model loses with a patch.

    Args:
        model: a vision transformer.
        images, labels: some pictures.
        captured: what ``capture_attention`` gave on them.

    Returns:
        The mean rank correlation with the size of ``occlusion``, and beside it ``…_error``, of
        ``class_row`` of rollout, by discard (``rollout_occlusion_50``), of that of the last layer
        (``last_occlusion``) and of the size of ``saliency`` (``saliency_occlusion``). Of rollout with the
        layers in the other order (``reversed_occlusion``) and with ``residual_share`` for the residual
        (``measured_occlusion``). And of two maps for comparison: another picture's rollout
        (``other_occlusion``) and the mean occlusion of all pictures, the one at hand among them
        (``mean_occlusion``). Nothing where a token cannot be taken out: where the attention is made for a
        number of tokens, or counts them.

    Taught in: chapter 25.
    """
    if any(problem.kernel.of_lag for layer in captured for problem in layer.problems):
        return {}
    if any(layer.sized for layer in model.modules() if isinstance(layer, Smoother)):
        return {}  # of these some would answer: Linformer's columns then belong to other patches
    try:
        truth = occlusion(model, images, labels).abs()
    except ValueError:  # a grid of patches, or positions: the model says so in its own words
        return {}
    shares = [magnitudes(layer.weights) for layer in captured]
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


def residual_metrics(model: ViT, images: Float[Tensor, "b channels height width"]) -> dict[str, float]:
    """``residual_share`` of each layer, as ``residual_<layer>``.

    Taught in: chapter 25.
    """
    return {f"residual_{index}": share.item() for index, share in enumerate(residual_share(model, images))}


def spectrum_metrics(
    model: nn.Module, attention: Sequence[Weights], snapshots: Sequence[Mapping[str, Tensor]] = ()
) -> dict[str, float]:
    """Effective ranks of attention and weights, and how much of a trajectory its plane holds.

    ``attention_rank_L`` is the mean effective rank of layer L's weights, over pictures and heads,
    ``KIND_rank`` that of the matrices of one kind, ``explained_K`` the share of the trajectory's K-th
    component. Layers count from 0, components from 1.

    Args:
        model: the trained model.
        attention: the weights of each layer.
        snapshots: of its training, in order.

    Taught in: chapter 26.
    """
    numbers = {
        f"attention_rank_{number}": effective_rank(singular_values(weights)).mean().item()
        for number, weights in enumerate(attention)
    }
    ranks: dict[str, list[float]] = {}
    for name, matrix in matrices(dict(model.named_parameters())).items():
        ranks.setdefault(kind(name), []).append(effective_rank(singular_values(matrix)).item())
    numbers |= {f"{name.replace(' ', '_')}_rank": sum(each) / len(each) for name, each in ranks.items()}
    if snapshots:
        shares = trajectory_plane(snapshots).explained[:3]
        numbers |= {f"explained_{number}": share for number, share in enumerate(shares.tolist(), start=1)}
    return numbers


def picture_rows(model: ViT, captured: Sequence[Captured]) -> list[Row]:
    """The maps of one picture, a number a row: ``figure, layer, head, row, column, value``.

    Of absolute weights where there are signs: ``rollout_00``, ``_50``, ``_90``; ``class``, the class token's
    map, by layer and head; ``patch_upper_left`` and the other three by layer, in the mean over heads. There
    row and column are a patch's. By layer and head with their signs: ``matrix``, at most 17 tokens of it,
    whose numbers row and column are, and ``spectrum``, its 17 largest singular values. ``sigma`` is each
    head's, where it has one.

    Args:
        model: says where the class token and the patches stand.
        captured: what ``capture_attention`` gave for one picture.

    Taught in: chapter 25.
    """
    shares, rows = [magnitudes(layer.weights) for layer in captured], []
    for discard in DISCARDS:
        flow = class_row(model, rollout(shares, discard=discard))[0]
        rows += _table(f"rollout_{100 * discard:02.0f}", patch_grid(flow))
    for index, (layer, share) in enumerate(zip(captured, shares, strict=True)):
        for head, row in enumerate(class_row(model, share[0])):
            rows += _table("class", patch_grid(row), layer=index, head=head)
            weights = layer.weights[0, head]
            matrix, tokens = subsample(weights, most=TOKENS)
            rows += _table("matrix", matrix, layer=index, head=head, names=tokens.tolist())
            rows += _table("spectrum", singular_values(weights)[None, :TOKENS], layer=index, head=head)
        for name, (_, row) in patch_rows(model, share).items():
            rows += _table(f"patch_{name.replace(' ', '_')}", row, layer=index)
    for (layer, head), sigma in _sigmas(model).items():
        rows.append(_row("sigma", layer, head, "", "", sigma))
    return rows


def landscape_rows(plane: Plane, surface: Surface) -> list[Row]:
    """``loss`` by its places on the plane's two axes, and ``path``: row a checkpoint, column an axis.

    Taught in: chapter 26.
    """
    first, second = (
        [f"{place:.{DIGITS}g}" for place in axis.tolist()] for axis in (surface.first, surface.second)
    )
    losses = [
        _row("loss", "", "", row, column, loss)
        for row, line in zip(first, surface.losses, strict=True)
        for column, loss in zip(second, line, strict=True)
    ]
    return losses + _table("path", plane.coordinates[:, :2])


def text_rows(model: nn.Module, captured: Sequence[Captured]) -> list[Row]:
    """The same of one text: what is drawn by layer and head over its tokens, and the banks.

    ``last`` is the last token's weights and ``received`` what each token receives, column a token; ``bank``
    is G, column a lag; ``matrix`` is the mean over heads of the first, the middle and the last layer, of the
    last 17 tokens.

    Args:
        model: with the banks in it.
        captured: what ``capture_attention`` gave for one text.

    Taught in: chapter 25.
    """
    rows = []
    for index, layer in enumerate(captured):
        for head in range(layer.weights.shape[1]):
            weights = layer.weights[:, head : head + 1]
            rows += _table("last", weights[0, :, -1], layer=index, head=head)
            rows += _table("received", received(weights)[0], layer=index, head=head)
    for index, kernel in enumerate(banks(model)):
        for head, values in enumerate(kernel.lag_table(captured[0].weights.shape[-1]).detach()):
            rows += _table("bank", values[None], layer=index, head=head)
    for index in sorted({0, len(captured) // 2, len(captured) - 1}):
        matrix = captured[index].weights[0].mean(0)[-TOKENS:, -TOKENS:]
        names = range(captured[index].weights.shape[-1])[-TOKENS:]
        rows += _table("matrix", matrix, layer=index, names=names)
    return rows


def _sigmas(model: nn.Module) -> dict[tuple[int, int], float]:
    """σ by layer and head, of heads that have one."""
    try:
        sigma = bandwidths(model).tolist()
    except ValueError:  # no kernel has any
        return {}
    of_heads = ((layer, head, value) for layer, row in enumerate(sigma) for head, value in enumerate(row))
    return {(layer, head): value for layer, head, value in of_heads if value == value}


def _table(
    figure: str,
    values: Tensor | np.ndarray,
    *,
    layer: int | str = "",
    head: int | str = "",
    names: Sequence[int] | None = None,
) -> list[Row]:
    """Two axes as rows; their places by number where they have no names."""
    return [
        _row(figure, layer, head, names[row] if names else row, names[column] if names else column, value)
        for row, line in enumerate(values)
        for column, value in enumerate(line)
    ]


def _row(
    figure: str, layer: int | str, head: int | str, row: int | str, column: int | str, value: float | Tensor
) -> Row:
    number = f"{float(value):.{DIGITS}g}"
    return {"figure": figure, "layer": layer, "head": head, "row": row, "column": column, "value": number}
