"""The inverse of a small matrix that may have none: exactly, or by a few matrix products."""

import torch
from torch import Tensor


def pseudo_inverse(matrix: Tensor, iterations: int | None = None, *, bound: Tensor | None = None) -> Tensor:
    r"""The pseudo-inverse A⁺, by singular values or by an iteration towards it.

    $$Z_0 = A^\top / \beta, \qquad Z \leftarrow \tfrac14 Z\big(13 I - AZ(15 I - AZ(7 I - AZ))\big)$$

    Each singular value s of A goes its own way: t = s²/β is mapped to ¼ t (13 − t (15 − t (7 − t))) in every
    step, and s is inverted as far as t has come to 1. A small t grows by a factor of 13/4 a step, so six
    steps leave the directions with s² far below β/1200 out of the inverse.

    Args:
        matrix: A, ``[... r r]``.
        iterations: how many steps; None is the pseudo-inverse itself, by a decomposition.
        bound: β, ``[...]``, at least the square of A's largest singular value; None is the largest sum of a
            column times that of a row.

    References:
        Razavi et al., A new iterative method for finding approximate inverses, 2014; Xiong et al., 2021.
        Chapter 12 shows how far six steps come.
    """
    if iterations is None:
        return torch.linalg.pinv(matrix)
    if bound is None:
        bound = matrix.abs().sum(-2).amax(-1) * matrix.abs().sum(-1).amax(-1)
    eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    inverse = matrix.mT / bound[..., None, None]
    for _ in range(iterations):
        product = matrix @ inverse
        inverse = inverse @ (13 * eye - product @ (15 * eye - product @ (7 * eye - product))) / 4
    return inverse


def check_iterations(owner: str, iterations: int | None) -> None:
    """Raise ``ValueError``, for ``owner``, unless there is at least one step, or None."""
    if iterations is not None and iterations < 1:
        raise ValueError(
            f"{owner}: iterations must be at least 1, or None for the exact inverse, not {iterations}"
        )
