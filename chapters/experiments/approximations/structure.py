"""Trained attention by kernels of the lag, and by fast Gauss transforms in few dimensions."""

import math
from functools import lru_cache

import torch
from torch import Tensor

from gkalib.data import Heads
from gkalib.kernels import ExpDot, Kernel, LagTable, PositiveRandom
from gkalib.smoothing import FastGauss, attention_weights, smooth

EPS = 1e-3  # of the fast Gauss transform


def by_lag(weights: Tensor) -> Tensor:
    """The sums of matrices ``[... n n]`` along their diagonals, ``[... 2n − 1]``, the lag −(n − 1) first."""
    length = weights.shape[-1]
    lag = torch.arange(length)[:, None] - torch.arange(length) + length - 1
    return weights.new_zeros(*weights.shape[:-2], 2 * length - 1).index_add(
        -1, lag.flatten(), weights.flatten(-2)
    )


def fit_table(weights: Tensor, content: Tensor | None = None, *, steps: int = 20) -> LagTable:
    """The table of lags whose attention exp(content + b) is nearest to given weights, in relative entropy.

    At the optimum each diagonal has the weight that it should have, so each step scales the diagonals to it.

    Args:
        weights: ``[b h n n]``, rows that sum to one.
        content: the scores without the table, ``[b h n n]``; None is zero.
        steps: how often all diagonals are scaled.
    """
    heads, length = weights.shape[1], weights.shape[-1]
    table = LagTable(heads, length).to(weights.dtype)
    lag = torch.arange(length)[:, None] - torch.arange(length) + length - 1
    wanted = by_lag(weights.sum(0))
    bias = torch.zeros_like(wanted)
    for _ in range(steps):
        scores = bias[:, lag] if content is None else content + bias[:, lag]
        actual = by_lag(scores.softmax(-1).expand_as(weights).sum(0))
        bias = bias + (wanted / actual).log()
    table.bias.data = bias
    return table


def explained_by_lags(weights: Tensor, *, steps: int = 20) -> tuple[Tensor, Tensor]:
    """The nearest weights that depend on the lag alone, ``[h n n]``, and how much of each head they explain.

    That is one minus the relative entropy to these weights over that to uniform weights, ``[h]``.

    Args:
        weights: ``[h n n]``, rows that sum to one.
        steps: how often ``fit_table`` scales all diagonals.
    """
    length = weights.shape[-1]
    lag = torch.arange(length)[:, None] - torch.arange(length) + length - 1
    nearest = fit_table(weights[None], steps=steps).bias.detach()[:, lag].softmax(-1)
    missing, whole = (
        torch.xlogy(weights, weights / other).sum(-1).mean(-1) for other in (nearest, 1 / length)
    )
    return nearest, 1 - missing / whole


def unit(heads: Heads) -> Heads:
    """Queries and keys of length one."""
    query, key = (part / part.norm(dim=-1, keepdim=True) for part in (heads.query, heads.key))
    return Heads(query, key, heads.value)


@lru_cache(maxsize=64)
def _table(aside: Heads, scale: float) -> LagTable:
    """The table for the attention exp(scale · cosine + b), fitted to other text's weights once."""
    weights, (query, key, _) = attention_weights(aside.query, aside.key, ExpDot()), unit(aside)
    return fit_table(weights, scale * query @ key.mT if scale else None)


def lags_only(heads: Heads, aside: Heads) -> Tensor:
    """Attention that does not read the tokens: a kernel of the lag, fitted to other text."""
    return smooth(*heads, _table(aside, 0.0), method="toeplitz")


def cosine_and_lags(heads: Heads, aside: Heads, scale: float) -> Tensor:
    """Attention by the cosine and a fitted table of lags, without features: where kernelized RPE ends."""
    return smooth(*unit(heads), ExpDot(scale) * _table(aside, scale), method="dense")


def kernelized(heads: Heads, aside: Heads, features: int, seed: int, *, scale: float = 1.0) -> Tensor:
    """The same with positive random features of the cosine: kernelized attention with relative positions.

    Summed pair by pair, which at these lengths is faster than the Fourier transforms and gives the same.
    """
    random: Kernel = PositiveRandom(heads.key.shape[-1], features, scale=scale, seed=seed, stabilizer="row")
    return smooth(*unit(heads), random * _table(aside, scale), method="dense")


def toeplitz_flops(features: int, heads: Heads) -> float:
    """Operations of features, transforms (2.5 N log₂ N for N real numbers) and their products."""
    batch, count, length, dim = heads.query.shape
    columns, circle = features * (heads.value.shape[-1] + 1), 2 * length
    transforms = 2 * columns * 2.5 * circle * math.log2(circle) + 6 * columns * (length + 1)
    return batch * count * (transforms + 4 * length * features * dim + 3 * length * columns)


def projected(heads: Heads, dim: int) -> Heads:
    """Queries and keys in few dimensions, where their products are the best of that rank for these tokens.

    Keys are taken about their mean, which no weight depends on.
    """
    key = heads.key - heads.key.mean((0, 2), keepdim=True)
    bases = [torch.linalg.qr(part.transpose(0, 1).flatten(1, 2)).R for part in (heads.query, key)]
    left, middle, right = torch.linalg.svd(bases[0] @ bases[1].mT)
    root = middle[:, None, :dim].sqrt()
    turns = [side[..., :dim] * root for side in (left, right.mT)]
    maps = [torch.linalg.solve(basis, turn) for basis, turn in zip(bases, turns, strict=True)]
    return Heads(heads.query @ maps[0], key @ maps[1], heads.value)


def temperature(heads: Heads) -> ExpDot:
    """The kernel of the model, whose scale is that of its full width."""
    return ExpDot(1 / math.sqrt(heads.value.shape[-1]))


def few_dimensions(heads: Heads, dim: int) -> Tensor:
    """The exact sum in few dimensions: what the projection alone costs."""
    return smooth(*projected(heads, dim), temperature(heads), method="dense")


def fast_gauss(heads: Heads, dim: int) -> Tensor:
    """The fast Gauss transform in few dimensions."""
    return smooth(*projected(heads, dim), temperature(heads), method=FastGauss(EPS))


def fast_gauss_flops(dim: int, heads: Heads) -> float:
    """Two operations for each multiplication that the plans count."""
    query, key, value = projected(heads, dim)
    sigma, width = heads.value.shape[-1] ** 0.25, value.shape[-1]
    plans = [
        FastGauss(EPS).plan(*pair, sigma=sigma, width=width)
        for pair in zip(query.flatten(0, 1), key.flatten(0, 1), strict=True)
    ]
    return 2 * sum(plan.operations for plan in plans)
