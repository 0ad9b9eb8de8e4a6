"""Normalizers that need no numbers of their own: the row sum and what stands in its place."""

import math
from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from gkalib.normalizers.base import Normalizer, empty_rows, softmax, zero_in
from gkalib.shapes import Scores, Weights, check_counts, check_not_negative


@final
class RowSum(Normalizer):
    r"""Weights in proportion to the kernel, summing to one: Nadaraya–Watson's normalizer, and softmax.

    $$w_{ij} = \frac{\kappa_{ij}}{\sum_{j'} \kappa_{ij'} + \varepsilon}$$

    Args:
        eps: ε ≥ 0, in the kernel's own units. With ε > 0 the rows sum to less than one.

    Raises:
        ValueError: if ``eps`` is negative or not finite.

    References:
        Nadaraya, 1964; Watson, 1964; ε as in GKA equation 4. Chapter 1 teaches it.
    """

    def __init__(self, eps: float = 0.0):
        super().__init__()
        check_not_negative("RowSum", "eps", eps)
        self.eps = eps
        self.averages = eps == 0

    def forward(self, scores: Scores) -> Weights:
        if self.eps == 0:
            return softmax(scores)
        empty = empty_rows(scores)
        scores = zero_in(empty, scores)
        # Relative to the row's largest score, so that large scores cost no digits.
        largest = scores.detach().amax(-1, keepdim=True)
        scores = scores - largest
        log_sum = torch.logaddexp(scores.logsumexp(-1, keepdim=True), math.log(self.eps) - largest)
        return zero_in(empty, (scores - log_sum).exp())

    def of_values(self, values: Tensor) -> Weights:
        total = values.sum(-1, keepdim=True) + self.eps
        nothing = total == 0
        return (values / total.masked_fill(nothing, 1.0)).masked_fill(nothing, 0.0)

    def extra_repr(self) -> str:
        return f"eps={self.eps}" if self.eps else ""


@final
class Unnormalized(Normalizer):
    r"""The kernel's values as weights, with no denominator.

    $$w_{ij} = \kappa_{ij}$$

    References:
        The non-softmax form of RBF attention; Skyformer's kernelized attention. Chapter 28 teaches it.
    """

    averages = False

    def forward(self, scores: Scores) -> Weights:
        return scores.exp()

    def of_values(self, values: Tensor) -> Weights:
        return values


@final
class TopK(Normalizer):
    r"""Softmax over the k keys of highest score; ties go to the lower index.

    $$w_{ij} \propto \kappa_{ij}\,[\,j \text{ among the } k \text{ largest of row } i\,]$$

    Args:
        k: at least 1; more than there are keys means all of them.

    Raises:
        ValueError: if ``k`` is below 1.

    References:
        Krause Synchronization Transformers, 2026. Chapter 10 teaches it; k nearest neighbors in chapter 1.
    """

    averages = True

    def __init__(self, k: int):
        super().__init__()
        check_counts("TopK", k=k)
        self.k = k

    def forward(self, scores: Scores) -> Weights:
        order = scores.detach().argsort(dim=-1, descending=True, stable=True)
        kept = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, order[..., : self.k], True)
        return softmax(scores.masked_fill(~kept, -torch.inf))

    def extra_repr(self) -> str:
        return str(self.k)


@final
class Simplex(Normalizer):
    r"""The point of the probability simplex nearest to the row of scores, also known as sparsemax.

    $$w_i = \arg\min_{w \ge 0,\, \sum_j w_j = 1} \|w - s_i\|^2 = \max(s_i - \lambda_i, 0)$$

    Its argument is the score log κ itself, not κ.

    References:
        Duchi et al., 2008; Martins and Astudillo, 2016; KArAt algorithm 1. Chapter 9 teaches it.
    """

    averages = True

    def forward(self, scores: Scores) -> Weights:
        return nearest_on_simplex(scores)


def nearest_on_simplex(scores: Scores) -> Weights:
    """The point of the probability simplex nearest to each row, zeros for a row of −∞ only."""
    empty = empty_rows(scores)
    scores = zero_in(empty, scores)
    # Whoever adds a number to a row adds it to λ: as differences from the largest, large scores keep digits.
    scores = scores - scores.detach().amax(-1, keepdim=True)
    ordered = scores.sort(dim=-1, descending=True).values
    rank = torch.arange(1, scores.shape[-1] + 1, device=scores.device, dtype=scores.dtype)
    # λ if exactly the first r entries stay positive; the true r is the last where entry r is above its λ.
    threshold = (ordered.masked_fill(ordered.isneginf(), 0.0).cumsum(-1) - 1) / rank
    support = (ordered > threshold).sum(-1, keepdim=True).clamp(min=1)  # none: the row is NaN
    weights = (scores - threshold.gather(-1, support - 1)).clamp(min=0)
    return zero_in(empty, weights)


@final
class PerHead(Normalizer):
    """Each normalizer serves its own group of heads, in the order given.

    Args:
        normalizers: the normalizers.
        heads: how many heads each serves; None is one each.

    Raises:
        ValueError: if the counts do not fit; in use, if the scores have another number of heads.

    Chapter 9 teaches it.
    """

    def __init__(self, normalizers: Sequence[Normalizer], *, heads: Sequence[int] | None = None):
        super().__init__()
        self.heads = [1] * len(normalizers) if heads is None else list(heads)
        if not normalizers or len(self.heads) != len(normalizers) or min(self.heads) < 1:
            raise ValueError(
                f"PerHead: {len(normalizers)} normalizers cannot serve {self.heads} heads: one count of at "
                "least 1 each"
            )
        self.normalizers = nn.ModuleList(normalizers)
        self.averages = all(each.averages for each in normalizers)

    @property
    def macs_per_row(self) -> int:
        """Multiplications that the learned ones spend on one row of all heads."""
        return sum(getattr(each, "macs_per_row", 0) for each in self.normalizers)

    def forward(self, scores: Scores) -> Weights:
        return self._each(scores, list(self.normalizers))

    def of_values(self, values: Tensor) -> Weights:
        return self._each(values, [each.of_values for each in self.normalizers])

    def _each(self, rows: Tensor, functions: list) -> Weights:
        if rows.shape[-3] != sum(self.heads):
            raise ValueError(f"PerHead: serves {sum(self.heads)} heads, given {rows.shape[-3]}")
        groups = rows.split(self.heads, dim=-3)
        return torch.cat([weigh(group) for weigh, group in zip(functions, groups, strict=True)], dim=-3)

    def __repr__(self) -> str:
        # The words of a list are no constant of a traced graph, and refusals hold this one.
        parts = ", ".join(map(repr, self.normalizers))
        heads = ", ".join(map(str, self.heads))
        return f"PerHead([{parts}], heads=[{heads}])"


@final
class Dropout(Normalizer):
    r"""Another normalizer's weights, each dropped with a probability while training, the rest scaled up.

    $$w_{ij} \leftarrow \frac{u_{ij}}{1 - p}\, w_{ij}, \qquad u_{ij} \sim \mathrm{Bernoulli}(1 - p)$$

    Args:
        normalizer: what makes the weights.
        p: the probability, at least 0 and below 1.

    Raises:
        ValueError: if ``p`` is outside this range.

    References:
        Srivastava et al., Dropout, 2014; on attention's weights since Vaswani et al., 2017.
    """

    def __init__(self, normalizer: Normalizer, p: float):
        super().__init__()
        if not isinstance(normalizer, Normalizer):
            raise ValueError(f"Dropout: normalizer must be one such as RowSum(), not {normalizer!r}")
        if not 0 <= p < 1:
            raise ValueError(f"Dropout: p must be at least 0 and below 1, not {p}")
        self.normalizer, self.p = normalizer, p

    @property
    def drops(self) -> bool:
        """Whether weights are dropped now: in training, with p above zero."""
        return self.training and self.p > 0

    @property
    def averages(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.normalizer.averages and not self.drops

    @property
    def of_vectors(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.normalizer.of_vectors

    def forward(self, scores: Scores, *vectors: Any) -> Weights:
        return dropout(self.normalizer(scores, *vectors), self.p, self.training)

    def of_values(self, values: Tensor) -> Weights:
        return dropout(self.normalizer.of_values(values), self.p, self.training)

    def __repr__(self) -> str:
        return f"Dropout({self.normalizer!r}, {self.p})"
