"""Rollout, how much of each input token is in each output token; and weights as maps of patches."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gkalib.models import ViT
from gkalib.shapes import Weights

Flow = Float[Tensor, "b n n"]
MOST = 50  # tokens of a matrix that can be told apart in a figure


def rollout(
    weights: Sequence[Weights],
    *,
    discard: float = 0.0,
    residual: float | Sequence[float] = 0.5,
) -> Flow:
    r"""Attention rollout: the product of the layers' mean matrices, each with its residual connection.

    $$\bar A^{(\ell)} = \frac1H \sum_h A^{(\ell,h)}, \qquad
    \hat A^{(\ell)} = \operatorname{rows}\big((1 - r)\,T_q(\bar A^{(\ell)}) + r I\big), \qquad
    R = \hat A^{(L)} \cdots \hat A^{(1)}$$

    rows(·) divides each row by its sum, and T_q keeps the entries that are at least the q-quantile of their
    matrix and sets the others to zero. Row i of R says how much of each input token is in output token i, if
    values, MLPs and norms did nothing. The last layer stands on the left, as in Abnar and Zuidema; the GKA
    paper prints ∏ from 1 to L, which does not say.

    Three more choices where the GKA paper is silent. The quantile is taken after the heads are averaged and
    before I is added, so that the residual connection is never discarded. It is that of the whole matrix, as
    in the code that people use for this. And it is the entry with exactly ⌊q n²⌋ entries before it in order:
    equal entries stay or go together, so that a uniform matrix loses nothing. Keys that a mask forbids are
    entries of zero and count: a q up to (n − 1) / 2n discards nothing else of a causal matrix.

    Registers and the class token are tokens like the others, in the product and in R; leave them out when R
    is read, not before.

    Args:
        weights: ``[b h n n]`` for each layer, the first layer first.
        discard: q, from 0 to below 1.
        residual: r, from 0 to 1; a number, or one a layer.

    Returns:
        ``[b n n]``, rows that sum to one.

    Raises:
        ValueError: if there is no layer, a matrix is not square, shapes differ, weights are negative, a
            number is out of range, or a row is left without anything.

    References:
        Abnar and Zuidema, Quantifying attention flow in transformers, 2020; Kundu et al., Gaussian Kernel
        Attention, 2026, section 7.2, equation 13. Taught in: chapter 25.
    """
    shares = [residual] * len(weights) if isinstance(residual, int | float) else list(residual)
    _check(weights, discard, shares)
    flow = torch.eye(weights[0].shape[-1], dtype=weights[0].dtype, device=weights[0].device)
    flow = flow.expand(weights[0].shape[0], -1, -1)
    for number, (layer, share) in enumerate(zip(weights, shares, strict=True)):
        step = (1 - share) * discarded(layer.mean(1), discard)
        step = step + share * torch.eye(step.shape[-1], dtype=step.dtype, device=step.device)
        total = step.sum(-1, keepdim=True)
        if (total <= 0).any():
            raise ValueError(f"rollout: a row of layer {number} has nothing left; give residual above zero")
        flow = step / total @ flow
    return flow


def discarded(matrix: Flow, share: float) -> Flow:
    """The matrix without the entries below a quantile, which become zero.

    Args:
        matrix: ``[b n n]``.
        share: the quantile of each matrix, from 0 to below 1.

    Taught in: chapter 25.
    """
    among = matrix.flatten(1)
    ordered = among.sort(-1).values
    threshold = ordered[..., int(share * ordered.shape[-1] + 1e-9), None]  # 0.29 of 100 is 29
    return torch.where(among >= threshold, among, 0.0).view(matrix.shape)


def _check(weights: Sequence[Tensor], discard: float, shares: Sequence[float]) -> None:
    if not weights:
        raise ValueError("rollout: there are no layers")
    batch, _, queries, _ = weights[0].shape
    for number, layer in enumerate(weights):
        if layer.shape[0] != batch or layer.shape[2:] != (queries, queries):
            raise ValueError(
                f"rollout: layer {number} has weights {list(layer.shape)}; needed are "
                f"[{batch} h {queries} {queries}], as many keys as queries in every layer"
            )
        if (layer < 0).any():
            raise ValueError(
                f"rollout: layer {number} has negative weights, down to {layer.min():.3g}, and shares of a "
                "flow have no sign; gkalib.analysis.magnitudes(weights) leaves their size"
            )
    if not 0 <= discard < 1:
        raise ValueError(f"rollout: discard must be at least 0 and below 1, not {discard}")
    if len(shares) != len(weights):
        raise ValueError(f"rollout: {len(shares)} numbers in residual for {len(weights)} layers")
    if not all(0 <= share <= 1 for share in shares):
        raise ValueError(f"rollout: residual must be from 0 to 1, not {shares}")


def class_row(model: ViT, matrices: Float[Tensor, "*b n n"]) -> Float[Tensor, "*b patches"]:
    """What the head reads, of each patch: the class token's row, or else the mean over the patches' rows.

    Args:
        model: says where the class token and the patches stand; registers are left out.
        matrices: ``[… n n]``, weights or a flow.

    Taught in: chapter 25.
    """
    registers, extra = model.config.registers, model.config.extra
    patches = matrices[..., extra:]
    return patches[..., registers, :] if model.config.class_token else patches[..., extra:, :].mean(-2)


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
        name: (place, patch_grid(rows[place[0] * side + place[1]]))
        for name, place in query_patches(side).items()
    }


def patch_grid(map):
    """Weights on P² patches, `[…, P²]`, as the square that the patches make, `[…, P, P]`.

    Args:
        map: tensor or array, the class token and registers left out.

    Raises:
        ValueError: when their number is no square.

    Taught in: chapter 25.
    """
    count = map.shape[-1]
    side = math.isqrt(count)
    if side * side != count:
        raise ValueError(f"patch_grid: {count} weights make no square; leave class token and registers out")
    return map.reshape(*map.shape[:-1], side, side)


def query_patches(side: int) -> dict[str, tuple[int, int]]:
    """The four patches whose maps the GKA paper shows, as (row, column) of a grid of `side` by `side`.

    Args:
        side: P.

    References:
        Kundu et al., Gaussian Kernel Attention, 2026, section 7.5. Taught in: chapter 25.
    """
    quarter, half, last = side // 4, side // 2, 3 * side // 4
    return {
        "upper left": (quarter, quarter),
        "center": (half, half),
        "lower right": (last, last),
        "upper right": (quarter, last),
    }


def subsample(matrix, *, most: int = MOST):
    """A matrix of at most so many tokens, evenly spaced and the first and last among them, and which.

    Args:
        matrix: `[…, n, n]`, tensor or array.
        most: how many tokens are kept where there are more.

    Returns:
        `[…, k, k]` and the k tokens' numbers.

    References:
        Kundu et al., Gaussian Kernel Attention, 2026, section 7.7. Taught in: chapter 25.
    """
    count = matrix.shape[-1]
    tokens = np.arange(count) if count <= most else np.linspace(0, count - 1, most).round().astype(int)
    return matrix[..., tokens[:, None], tokens], tokens
