"""Divide by the row's sum: the normalizer of Nadaraya–Watson and of softmax."""

import math

import torch
from torch import Tensor

from gkalib.normalizers.base import Normalizer, empty_rows, softmax
from gkalib.shapes import Scores, Weights


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
        if not (math.isfinite(eps) and eps >= 0):
            raise ValueError(f"RowSum: eps must be zero or positive, not {eps}")
        self.eps = eps
        self.averages = eps == 0

    def __call__(self, scores: Scores) -> Weights:
        if self.eps == 0:
            return softmax(scores)
        empty = empty_rows(scores)
        scores = scores.masked_fill(empty, 0.0)
        # Relative to the row's largest score, so that large scores cost no digits.
        largest = scores.detach().amax(-1, keepdim=True)
        scores = scores - largest
        log_sum = torch.logaddexp(scores.logsumexp(-1, keepdim=True), math.log(self.eps) - largest)
        return (scores - log_sum).exp().masked_fill(empty, 0.0)

    def of_values(self, values: Tensor) -> Weights:
        total = values.sum(-1, keepdim=True) + self.eps
        nothing = total == 0
        return (values / total.masked_fill(nothing, 1.0)).masked_fill(nothing, 0.0)

    def __repr__(self) -> str:
        return f"RowSum(eps={self.eps})" if self.eps else "RowSum()"
