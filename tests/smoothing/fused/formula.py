"""What the fused operations compute, as plain formulas over the whole matrix that autograd can follow."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gkalib.smoothing.fused.forward import smooth_forward
from gkalib.smoothing.spans import Spans


@dataclass(frozen=True)
class Inputs:
    """The arguments of ``smooth_forward``; table, norm as there."""

    query: Tensor
    key: Tensor
    value: Tensor
    scale: Tensor
    norm: Tensor | None
    table: Tensor | None
    spans: Spans
    normalize: bool

    def to(self, dtype: torch.dtype) -> "Inputs":
        """With tensors of this type."""
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        tensors = {name: getattr(self, name).detach().to(dtype) for name in ("query", "key", "value")}
        for name in ("scale", "norm", "table"):
            given = getattr(self, name)
            tensors[name] = None if given is None else given.detach().to(wide)
        return replace(self, **tensors)

    def all(self) -> tuple:
        """The arguments in order."""
        return (
            self.query,
            self.key,
            self.value,
            self.scale,
            self.norm,
            self.table,
            self.spans,
            self.normalize,
        )


def random_inputs(
    queries: int,
    keys: int,
    spans: Spans,
    *,
    batch: int = 1,
    heads: int = 2,
    groups: int = 2,
    width: int = 16,
    value_width: int = 16,
    norm: bool = False,
    table: bool = False,
    normalize: bool = True,
    device: torch.device | str = "cpu",
) -> Inputs:
    """Numbers in float64; a scale and a norm of each head's own; tensors token-major in memory."""

    def normal(length: int, count: int, size: int) -> Tensor:
        drawn = torch.randn(batch, length, count, size, dtype=torch.float64).to(device).transpose(1, 2)
        return drawn.requires_grad_()

    def positive(least: float) -> Tensor:
        return (torch.rand(heads, dtype=torch.float64) + least).to(device) / width**0.5

    lags = torch.randn(heads, queries + keys - 1, dtype=torch.float64).to(device).requires_grad_()
    return Inputs(
        normal(queries, heads, width),
        normal(keys, groups, width),
        normal(keys, groups, value_width),
        positive(0.5),
        positive(0.5).requires_grad_() if norm else None,
        lags if table else None,
        spans,
        normalize,
    )


def of_itself(x: Tensor, sigma: Tensor, spans: Spans, eps: float = 0.0) -> tuple[Tensor, Tensor]:
    """One tensor by ``smooth_forward``: the result, and each row's sum."""
    return smooth_forward(x, None, None, None, None, None, spans, True, sigma, eps)


def seen(spans: Spans, queries: int, keys: int, device: torch.device) -> Tensor:
    """Which key each query may see, ``[b|1 1 n m]``."""
    query, key = torch.arange(queries, device=device)[:, None], torch.arange(keys, device=device)
    if spans.first is None or spans.last is None:
        at = query + keys - queries
        return ((at - spans.left <= key) & (key <= at + spans.right))[None, None]
    return ((spans.first[:, :, None] <= key) & (key < spans.last[:, :, None]))[:, None]


def smoothed(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """``smooth_forward``: the result, and the base-2 logarithm of each row's sum without its norm."""
    query, queries, keys = inputs.query, inputs.query.shape[2], inputs.key.shape[2]
    repeats = query.shape[1] // inputs.key.shape[1]
    key, value = (each.repeat_interleave(repeats, 1) for each in (inputs.key, inputs.value))
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    score = inputs.scale[:, None, None] * (query.to(wide) @ key.to(wide).mT)
    if inputs.norm is not None:
        half = inputs.norm[:, None, None] / 2
        score = score - half * key.to(wide).square().sum(-1)[:, :, None, :]
        if not inputs.normalize:
            score = score - half * query.to(wide).square().sum(-1)[..., None]
    if inputs.table is not None:
        lag = torch.arange(queries, device=query.device)[:, None] - torch.arange(keys, device=query.device)
        score = score + inputs.table[:, lag + keys - 1]
    score = score.masked_fill(~seen(inputs.spans, queries, keys, query.device), -math.inf)
    if not inputs.normalize:
        return (score.exp() @ value.to(wide)).to(query.dtype), score.new_empty(0)
    log_sum = score.logsumexp(-1)
    log_sum = torch.where(log_sum == -math.inf, math.inf, log_sum)
    weights = (score - log_sum[..., None]).exp()
    return (weights @ value.to(wide)).to(query.dtype), log_sum / math.log(2)
