"""Masks as one interval of keys for each query, which a loop over blocks of keys can start and stop at."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from gkalib.masks import Causal, Document, KeyPadding, Window
from gkalib.smoothing.problem import Problem

INTERVALS = (Causal, Window, Document, KeyPadding)
"""The masks that let a query see one interval of keys."""


class Spans(NamedTuple):
    r"""The keys that query i may see, $\mathrm{first}_i \le j < \mathrm{last}_i$; neither end ever goes back.

    Without vectors the interval is a band around key i + m − n, on which query i sits:
    $i + m - n - \mathrm{left} \le j \le i + m - n + \mathrm{right}$, cut at 0 and m.

    Args:
        left, right: the band; n + m where it has no end on that side.
        first, last: int32 ``[b n]`` or ``[1 n]``, and then the band is already part of them; both or neither.
    """

    left: int
    right: int
    first: Tensor | None = None
    last: Tensor | None = None

    def all(self, queries: int, keys: int) -> bool:
        """Whether every query sees every key."""
        return self.first is None and self.left >= keys - 1 and self.right >= queries - 1

    def ends(self, queries: int, keys: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """The first key of each query and the one after its last, ``[b n]`` or ``[1 n]``."""
        if self.first is not None and self.last is not None:
            return self.first, self.last
        at = torch.arange(keys - queries, keys, device=device)[None]
        return (at - self.left).clamp(0, keys), (at + self.right + 1).clamp(0, keys)

    def inverse(self, queries: int, keys: int, derived: Callable[..., Tensor] | None = None) -> "Spans":
        """The queries that see key j, as an interval for each key; ``derived`` calls functions of tensors."""
        if self.first is None or self.last is None:
            return Spans(self.right, self.left)
        derived = derived or (lambda function, *tensors: function(*tensors))

        def indices(ends: Tensor) -> Tensor:
            every = torch.arange(keys, device=ends.device, dtype=torch.int32)
            return every.expand(len(ends), keys).contiguous()

        def reached(ends: Tensor, index: Tensor) -> Tensor:
            return torch.searchsorted(ends.contiguous(), index, right=True, out_int32=True)

        index = derived(indices, self.first)
        first, last = (derived(reached, ends, index) for ends in (self.last, self.first))
        return Spans(self.right, self.left, first, last)


def why_not(problem: Problem) -> str | None:
    """The reason why the mask is no interval of keys for each query, or None if it is."""
    if problem.positions is not None:
        return "positions were given, and only those counted from the last key make intervals for certain"
    for rule in problem.rules:
        if isinstance(rule, Document) and not rule.packed():
            return "a document of the mask is not one run of tokens"
        if not isinstance(rule, INTERVALS):
            return f"{type(rule).__name__} is no interval of keys for each query"
    return None


def spans_of(problem: Problem) -> Spans:
    """The mask as intervals, where ``why_not`` finds no reason against it."""
    _, _, queries, keys = problem.sizes
    left = right = queries + keys
    for rule in problem.rules:
        if isinstance(rule, Causal):
            right = 0
        elif isinstance(rule, Window):
            left, right = min(left, rule.size - 1), min(right, rule.size - 1)
    band = Spans(left, right)
    others = [rule for rule in problem.rules if isinstance(rule, (Document, KeyPadding))]
    if not others:
        return band
    first, last = band.ends(queries, keys, problem.query.device)
    for rule in others:
        if isinstance(rule, KeyPadding):
            last = torch.minimum(last, rule.lengths.to(last)[:, None])
        else:
            start, stop = rule.runs()
            first = torch.maximum(first, start[:, keys - queries :])
            last = torch.minimum(last, stop[:, keys - queries :])
    rows = max(len(first), len(last))
    first, last = (end.expand(rows, queries).to(torch.int32).contiguous() for end in (first, last))
    return Spans(left, right, first, last)
