"""Measures of attention weights that fit every variant, and what a model's kernels have learned."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gkalib.kernels import DecayingPeriodicBank
from gkalib.layers import Smoother
from gkalib.layers.mixed import MixedAttention
from gkalib.shapes import Weights

Rows = Float[Tensor, "*b n m"]


def magnitudes(weights: Rows) -> Rows:
    r"""Each row's absolute weights as shares, $p_{ij} = |w_{ij}| / \sum_l |w_{il}|$.

    For rows of an average these are the weights. KArAt's rows have signs and any sum: here only how much a
    token matters is left of them, not in which direction. A row of zeros stays one.

    Args:
        weights: ``[… n m]``.

    Taught in: chapter 25.
    """
    size = weights.abs()
    return size / size.sum(-1, keepdim=True).clamp_min(torch.finfo(size.dtype).tiny)


def neighbors(weights: Rows) -> Float[Tensor, "*b n"]:
    r"""How many keys a query effectively averages over, $(\sum_j |w_{ij}|)^2 / \sum_j w_{ij}^2$.

    From 1, one key, to m, all alike; 0 for a row of zeros. The scale of every row does not matter.

    Args:
        weights: ``[… n m]``.

    Taught in: chapters 1 and 23.
    """
    squares = magnitudes(weights).square().sum(-1)
    return torch.where(squares > 0, 1 / squares.clamp_min(torch.finfo(squares.dtype).tiny), 0.0)


def entropy(weights: Rows) -> Float[Tensor, "*b n"]:
    r"""The entropy of each row, $-\sum_j p_{ij} \ln p_{ij}$ in nats, of ``magnitudes``.

    From 0, one key, to ln m, all alike. Its exponential is another count of neighbors, never below
    ``neighbors``.

    Args:
        weights: ``[… n m]``.

    Taught in: chapter 25.
    """
    return torch.special.entr(magnitudes(weights)).sum(-1)


def own(weights: Rows) -> Float[Tensor, "*b n"]:
    """The share of each row that a query's own key has; the last query is the last key.

    Args:
        weights: ``[… n m]``.

    Raises:
        ValueError: if there are more queries than keys.

    Taught in: chapter 25.
    """
    queries, keys = weights.shape[-2:]
    if queries > keys:
        raise ValueError(f"own: {queries} queries have no own keys among {keys}")
    return magnitudes(weights).diagonal(keys - queries, -2, -1)


def received(weights: Rows) -> Float[Tensor, "*b m"]:
    r"""What each key receives, $\frac{m}{n} \sum_i p_{ij}$: 1 is an equal share, m is all there is.

    A sink is a key with a large one. Under a causal mask the first keys have more queries: with all rows
    uniform the first of m receives 1 + 1/2 + … + 1/m, about ln m + 0.58, and the last 1/m.

    Args:
        weights: ``[… n m]``.

    Taught in: chapter 25.
    """
    return weights.shape[-1] * magnitudes(weights).mean(-2)


def contributions(
    weights: Weights, value: Float[Tensor, "b h m e"], out: Float[Tensor, "h e width"]
) -> Weights:
    r"""Each key's share of the lengths that a layer adds up in a query, $w_{ij} \|v_j W_O\|$, for each head.

    $$c_{ij} = \frac{w_{ij} \|v_j W_O\|}{\sum_l w_{il} \|v_l W_O\|}$$

    Args:
        weights: ``[b h n m]``, not negative.
        value: ``[b h m e]``.
        out: $W_O$, the rows that meet each head, ``[h e width]``.

    References:
        Kobayashi et al., Attention is not only a weight, 2020. Taught in: chapter 25.
    """
    return magnitudes(weights * (value @ out).norm(dim=-1)[..., None, :])


def mass(weights: Rows) -> Float[Tensor, "*b n"]:
    """The sum of each row with its signs: 1 for an average.

    Args:
        weights: ``[… n m]``.

    Taught in: chapter 25.
    """
    return weights.sum(-1)


def negative(weights: Rows) -> Float[Tensor, "*b n"]:
    """The share of each row's absolute weight that is below zero.

    Args:
        weights: ``[… n m]``.

    Taught in: chapter 25.
    """
    return (magnitudes(weights) * (weights < 0)).sum(-1)


def measures(weights: Weights, *, token: int | None = None) -> dict[str, Float[Tensor, " h"]]:
    """Every measure for each head, in the mean over items and queries.

    Args:
        weights: ``[b h n m]``, of one layer.
        token: a key whose share of all rows is measured too, as ``token``; the class token for one.

    Returns:
        ``neighbors``, ``entropy``, ``own``, ``mass``, ``negative``, and ``largest``: the share of all rows,
        from 1/m to 1, of the key that receives most in an item.

    Raises:
        ValueError: if there are more queries than keys.

    Taught in: chapter 25.
    """
    rows = {"neighbors": neighbors, "entropy": entropy, "own": own, "mass": mass, "negative": negative}
    by_head = {name: measure(weights).mean((0, 2)) for name, measure in rows.items()}
    share = received(weights) / weights.shape[-1]
    by_head["largest"] = share.amax(-1).mean(0)
    return by_head if token is None else by_head | {"token": share[..., token].mean(0)}


def bandwidths(model: nn.Module) -> Float[Tensor, "layers heads"]:
    """σ of every head of every attention layer, NaN where a head's kernel has none.

    Args:
        model: with attention of this library in it.

    Returns:
        ``[layers heads]``, in the units of what the kernel compares.

    Raises:
        ValueError: if no head has a bandwidth, or the layers have different numbers of heads.

    References:
        Kundu et al., Gaussian Kernel Attention, 2026, section 7.3. Taught in: chapter 25.
    """
    rows, inside = [], set()
    for module in model.modules():
        if isinstance(module, MixedAttention):
            branches = [branch for branch in module.branches.values() if isinstance(branch, Smoother)]
            inside |= set(branches)
            rows.append(torch.cat([_sigma(branch) for branch in branches]))
        elif isinstance(module, Smoother) and module not in inside:
            rows.append(_sigma(module))
    if not any(row.isfinite().any() for row in rows):
        raise ValueError(f"bandwidths: no kernel in {type(model).__name__} has a bandwidth σ")
    counts = sorted({len(row) for row in rows})
    if len(counts) > 1:
        raise ValueError(f"bandwidths: layers have {counts} heads, and a table of σ needs one number")
    return torch.stack(rows)


def banks(model: nn.Module) -> list[DecayingPeriodicBank]:
    """The banks of a model, in the order of its layers.

    Taught in: chapter 25.
    """
    return [module for module in model.modules() if isinstance(module, DecayingPeriodicBank)]


def _sigma(module: Smoother) -> Tensor:
    """σ of each head, ``[h]``."""
    sigma = getattr(module.kernel, "sigma", None)
    # A bank of lags has a σ of its own, an amplitude a term; only one number a head is a bandwidth.
    if sigma is None or (isinstance(sigma, Tensor) and sigma.numel() not in (1, module.num_heads)):
        return torch.full((module.num_heads,), torch.nan)
    return torch.as_tensor(sigma).detach().float().cpu().reshape(-1).expand(module.num_heads)
