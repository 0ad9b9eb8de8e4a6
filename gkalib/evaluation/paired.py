"""Two models on the same questions: how far apart they are, and how often chance does as well."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class Comparison:
    """The difference of two accuracies on the same questions.

    Args:
        difference: the first accuracy less the second.
        error: its standard error, from the differences question by question.
        only_first, only_second: how many questions one model alone answered rightly.
        items: how many questions there were.
    """

    difference: float
    error: float
    only_first: int
    only_second: int
    items: int

    @property
    def probability(self) -> float:
        """McNemar's exact test: how often a fair coin divides as unevenly what tells the models apart.

        Twice the probability of at most min(only_first, only_second) heads in as many throws as there are
        such questions, at most 1.
        """
        throws, fewer = self.only_first + self.only_second, min(self.only_first, self.only_second)
        ways = sum(math.comb(throws, heads) for heads in range(fewer + 1))
        return min(1.0, 2 * ways / 2**throws)


def compare(first: Sequence[bool], second: Sequence[bool]) -> Comparison:
    """Compare two models question by question.

    With δᵢ = first − second in {−1, 0, 1}, the difference is the mean of δ and its standard error
    √(Σ (δᵢ − mean)² / (n (n − 1))). Questions that both answer alike add nothing to it.

    Args:
        first, second: whether each question was answered rightly, in the same order.

    Raises:
        ValueError: if they are not of equally many questions, at least two.

    References:
        McNemar, Note on the sampling error of the difference between correlated proportions, 1947. Chapter 22
        teaches it.
    """
    if len(first) != len(second) or len(first) < 2:
        raise ValueError(
            f"evaluate: a comparison needs the same questions, at least two: {len(first)} and {len(second)} "
            "answers"
        )
    count = len(first)
    only_first = sum(one and not other for one, other in zip(first, second, strict=True))
    only_second = sum(other and not one for one, other in zip(first, second, strict=True))
    mean = (only_first - only_second) / count
    spread = only_first + only_second - count * mean**2
    return Comparison(mean, math.sqrt(spread / (count * (count - 1))), only_first, only_second, count)
