"""Singular values of attention and of weights, how many of them count, and how weights are spread."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

Weights = Mapping[str, Tensor]


def singular_values(matrices: Float[Tensor, "*batch n m"]) -> Float[Tensor, "*batch k"]:
    """The singular values of each matrix, the largest first, in float64.

    Args:
        matrices: ``[... n m]``, such as the weights ``[b h n m]`` of a layer.

    Returns:
        ``[... k]``, k = min(n, m).

    Taught in: chapter 27.
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
        Maity et al., Kolmogorov–Arnold attention, 2025, figure 7. Taught in: chapter 27.
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
        Roy and Vetterli, The effective rank, 2007. Taught in: chapter 27.
    """
    total = _total(values, "effective_rank")
    return torch.special.entr(values / total).sum(-1).exp()


def energy_rank(values: Float[Tensor, "*batch k"], share: float = 0.99) -> Int64[Tensor, "*batch"]:
    r"""The smallest rank whose best approximation keeps a share of a matrix's squared entries.

    $$\min\Big\{r : \sum_{i \le r} \sigma_i^2 \ge s \sum_i \sigma_i^2\Big\}$$

    Args:
        values: ``[... k]``, the largest first.
        share: s.

    Raises:
        ValueError: if the share is not in (0, 1], or a matrix has no singular value above zero.

    Taught in: chapter 27.
    """
    if not 0 < share <= 1:
        raise ValueError(f"energy_rank: share must be above 0 and at most 1, not {share}")
    energy = values.double().square()
    shares = energy.cumsum(-1) / _total(energy, "energy_rank")
    # The last sum may round to just below one.
    return 1 + (shares[..., :-1] < min(share, 1 - 1e-12)).sum(-1)


def _total(values: Tensor, name: str) -> Tensor:
    total = values.sum(-1, keepdim=True)
    if not bool((total > 0).all()):
        raise ValueError(f"{name}: needs a singular value above zero in every matrix")
    return total


def matrices(weights: Weights) -> dict[str, Tensor]:
    """The parameters that are matrices, by name: those with two axes, both longer than one.

    Args:
        weights: parameters by name, such as ``dict(model.named_parameters())`` or a snapshot.

    Taught in: chapter 27.
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


class Histogram(NamedTuple):
    """How often numbers fall into bins: edges ``[bins + 1]`` and densities ``[bins]``, of ``size`` numbers.

    ``outside`` is the share of them beyond the first and last edge: densities sum to the rest.
    """

    edges: Float[Tensor, " edges"]
    density: Float[Tensor, " bins"]
    size: int
    outside: float


def histogram(weights: Weights, *, bins: int = 61, span: float | None = None) -> dict[str, Histogram]:
    """How the parameters are distributed, one histogram a kind.

    Args:
        weights: parameters by name.
        bins: how many, of equal width.
        span: the edges reach from −span to span; None is the largest magnitude of each kind. Histograms that
            are to be compared, such as those of several steps, need the same one.

    Raises:
        ValueError: if there are no parameters, or ``bins`` or ``span`` is not positive.

    References:
        Maity et al., Kolmogorov–Arnold attention, 2025, figure 6. Taught in: chapter 27.
    """
    if not weights:
        raise ValueError("histogram: needs parameters, and none are given")
    if bins < 1 or (span is not None and not span > 0):
        raise ValueError(f"histogram: bins and span must be positive, not {bins} and {span}")
    grouped: dict[str, list[Tensor]] = {}
    for name, tensor in weights.items():
        grouped.setdefault(kind(name), []).append(tensor.detach().double().cpu().flatten())
    return {name: _histogram(torch.cat(parts), bins, span) for name, parts in grouped.items()}


def _histogram(values: Tensor, bins: int, span: float | None) -> Histogram:
    reach = span or values.abs().max().item() or 1.0
    counts, edges = torch.histogram(values, bins, range=(-reach, reach))
    inside = counts.sum().item()
    density = counts / (edges[1:] - edges[:-1]) / len(values)
    return Histogram(edges, density, len(values), 1 - inside / len(values))
