"""Singular values of attention and of weights, and how many of them count."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

Weights = Mapping[str, Tensor]


def singular_values(matrices: Float[Tensor, "*batch n m"]) -> Float[Tensor, "*batch k"]:
    """The singular values of each matrix, the largest first, in float64.

    Args:
        matrices: ``[... n m]``, such as the weights ``[b h n m]`` of a layer.

    Returns:
        ``[... k]``, k = min(n, m).

    Taught in: chapter 29.
    """
    return torch.linalg.svdvals(matrices.detach().double())


def spectrum(matrices: Float[Tensor, "*batch n m"]) -> Float[Tensor, " k"]:
    r"""The logarithm of the mean singular value at each index, over all heads and pictures.

    $$\log \bar\lambda_i, \qquad \bar\lambda_i = \frac{1}{B} \sum_{b=1}^{B} \lambda_i(A_b)$$

    The mean comes first: it belongs to the matrices with the largest values. An index at which all matrices
    have none is −∞, or where rounding leaves something, very far below.

    Args:
        matrices: ``[... n m]``, B of them.

    References:
        Maity et al., Kolmogorov–Arnold attention, 2025, figure 7. Taught in: chapter 29.
    """
    values = singular_values(matrices)
    return values.reshape(-1, values.shape[-1]).mean(0).log()


def effective_rank(values: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch"]:
    r"""How many singular values a matrix has in effect: the exponential of their entropy.

    $$\exp\Big(-\sum_i p_i \log p_i\Big), \qquad p_i = \sigma_i \Big/ \sum_j \sigma_j$$

    It is k for k equal values, 1 for a single one, and a scaled matrix has the same.

    Args:
        values: ``[... k]``, as ``singular_values`` gives them.

    Raises:
        ValueError: if a matrix has no singular value above zero.

    References:
        Roy and Vetterli, The effective rank, 2007. Taught in: chapter 29.
    """
    total = values.sum(-1, keepdim=True)
    if not bool((total > 0).all()):
        raise ValueError("effective_rank: needs a singular value above zero in every matrix")
    return torch.special.entr(values / total).sum(-1).exp()


def matrices(weights: Weights) -> dict[str, Tensor]:
    """The parameters that are matrices, by name: those with two axes, both longer than one.

    Args:
        weights: parameters by name, such as ``dict(model.named_parameters())`` or a snapshot.

    Taught in: chapter 29.
    """
    return {
        name: tensor.detach()
        for name, tensor in weights.items()
        if tensor.ndim == 2 and min(tensor.shape) > 1
    }


def kind(name: str) -> str:
    """What a parameter does, from its name: ``attention query``, ``attention kernel``, ``mlp``, ``norm``, …

    Of attention the first word inside the layer is kept, such as a slot's. What is in none of the blocks goes
    by its own first word.
    """
    parts = name.split(".")
    if "attn" in parts:
        return f"attention {parts[parts.index('attn') + 1]}"
    if any(part.startswith(("norm", "ln_")) for part in parts):
        return "norm"
    return "mlp" if "mlp" in parts else parts[0]
