"""Weights on the tokens of a picture: the class token's row, maps of patches, matrices of fewer tokens."""

import math

import numpy as np
from jaxtyping import Float
from torch import Tensor

from gkalib.models import ViT
from gkalib.shapes import Weights

MOST = 50  # tokens of a matrix that can be told apart in a figure


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
