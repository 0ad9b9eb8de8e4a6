"""Approximations of low rank as arms of ``approximations``: landmarks, and learned combinations of keys."""

from functools import cache

import torch
from torch import Tensor, nn

from gkalib.data import Heads, trained_heads
from gkalib.kernels import ExpDot, Gaussian
from gkalib.normalizers import Unnormalized
from gkalib.smoothing import Linformer, Nystrom, Skyformer, smooth

EVERY, PASSAGES, LENGTH = 12, 48, 256  # of 48 passages every twelfth is measured on, the others are fitted on
STEPS, BATCH, RATE = 100, 2, 0.001  # at 0.005 64 rows end worse than they start


def gaussian_sum(heads: Heads) -> Tensor:
    """The unnormalized Gaussian attention that Skyformer stands for, on the model's queries and keys."""
    return smooth(*heads, Gaussian(heads.query.shape[-1] ** 0.25), normalizer=Unnormalized())


def nystrom(heads: Heads, size: int, iterations: int | None) -> Tensor:
    """Softmax attention through as many segment means."""
    return smooth(*heads, ExpDot(), method=Nystrom(size, iterations=iterations))


def skyformer(heads: Heads, size: int, generator: torch.Generator) -> Tensor:
    """Gaussian sums through landmarks drawn from queries and keys, with the options of the authors' code."""
    seed = int(torch.randint(2**31, (), generator=generator))
    kernel = Gaussian(heads.query.shape[-1] ** 0.25)
    return smooth(*heads, kernel, normalizer=Unnormalized(), method=Skyformer(size, seed=seed))


def stretches(rank: int, length: int, heads: int = 1) -> Tensor:
    """The matrix that takes the mean of every stretch of tokens, ``[h r m]``: Linformer without learning."""
    member = torch.arange(length) * rank // length == torch.arange(rank)[:, None]
    return (member / member.sum(-1, keepdim=True)).expand(heads, -1, -1)


def linformer_of_means(heads: Heads, size: int) -> Tensor:
    """Linformer whose maps are means of stretches."""
    maps = stretches(size, heads.key.shape[2]).to(heads.key)
    return smooth(*heads, ExpDot(), method=Linformer(maps))


@cache
def _other_text() -> list[Heads]:
    """The heads of every layer on passages that nothing is measured on."""
    keep = torch.arange(PASSAGES) % EVERY != 0
    return [Heads(*(part[keep] for part in heads)) for heads in trained_heads(PASSAGES, LENGTH).heads]


def linformer_fitted(heads: Heads, size: int, layer: int, generator: torch.Generator) -> Tensor:
    """Linformer with one E and one F for each head, fitted on other text to the layer's own output."""
    text = _other_text()[layer]
    count, number = text.query.shape[:2]
    target = smooth(*text, ExpDot())
    weight = 1 / target.square().mean((0, 2, 3), keepdim=True)
    start = stretches(size, LENGTH, number)
    method = Linformer(nn.Parameter(start.clone()), nn.Parameter(start.clone()))
    optimizer = torch.optim.Adam(method.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for _ in range(STEPS):
        chosen = torch.randperm(count, generator=generator)[:BATCH]
        some = Heads(*(part[chosen] for part in text))
        out = smooth(*some, ExpDot(), method=method)
        optimizer.zero_grad()
        ((out - target[chosen]).square() * weight).mean().backward()
        optimizer.step()
        schedule.step()
    single = Heads(*(part.float() for part in heads))
    with torch.no_grad():
        return smooth(*single, ExpDot(), method=method).to(heads.query)


def linformer_flops(size: int, heads: Heads) -> float:
    """Operations of one layer's forward pass, without the fit: two projections and two small products."""
    batch, number, tokens, width = heads.query.shape
    return 8.0 * batch * number * tokens * size * width
