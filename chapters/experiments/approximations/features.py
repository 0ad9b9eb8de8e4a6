"""Softmax attention of a trained model by random features: positive, positive around the mean, Fourier."""

import math

import torch
from torch import Tensor

from gkalib.data import Heads
from gkalib.kernels import Kernel, PositiveRandom, RandomFourier
from gkalib.normalizers import Unnormalized
from gkalib.smoothing import smooth


def voted(heads: Heads, kernel: Kernel, log_votes: Tensor) -> Tensor:
    """The average under the weights p_j κ(q_i, k_j), for keys that count p_j times (log p ``[b h m 1]``)."""
    votes = (log_votes - log_votes.amax(2, keepdim=True)).exp()
    value = torch.cat([votes * heads.value, votes], dim=-1)
    sums = smooth(heads.query, heads.key, value, kernel, normalizer=Unnormalized())
    return sums[..., :-1] / sums[..., -1:]


def positive(heads: Heads, features: int, seed: int) -> Tensor:
    """Performer: positive random features of the exponential dot product."""
    kernel = PositiveRandom(heads.key.shape[-1], features, seed=seed, stabilizer="row")
    return smooth(*heads, kernel)


def centered(heads: Heads, features: int, seed: int) -> Tensor:
    """The same of queries and keys about their means, which is softmax attention with votes exp(s q̄·k)."""
    query, key = (part - part.mean(2, keepdim=True) for part in (heads.query, heads.key))
    log_votes = (heads.query.mean(2, keepdim=True) * heads.key).sum(-1, keepdim=True)
    kernel = PositiveRandom(key.shape[-1], features, seed=seed, stabilizer="row")
    return voted(Heads(query, key, heads.value), kernel, kernel.scale * log_votes)


def fourier(heads: Heads, features: int, seed: int) -> Tensor:
    """Random Fourier features of the Gaussian, with the votes exp(s ‖k‖² / 2) that make it the dot product.

    ``features`` counts cosines and sines, so half as many rows are drawn.
    """
    width = heads.key.shape[-1]
    kernel = RandomFourier(width, features // 2, sigma=width**0.25, seed=seed)
    return voted(heads, kernel, heads.key.square().sum(-1, keepdim=True) / (2 * math.sqrt(width)))
