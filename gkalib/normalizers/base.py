"""What a normalizer is: the step from a row of scores to a row of weights."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from gkalib.shapes import Scores, Weights, readable


def empty_rows(scores: Tensor) -> Tensor | None:
    """True for rows without a single allowed key, ``[b h n 1]``; None where it is known that there are none.

    Numbers are looked at where they are ``readable``.
    """
    empty = scores.detach().amax(-1, keepdim=True) == -torch.inf
    return None if readable(empty) and not empty.any() else empty


def zero_in(rows: Tensor | None, tensor: Tensor) -> Tensor:
    """The tensor with zeros in these rows; on a CPU that takes ten times as long as an addition."""
    return tensor if rows is None else tensor.masked_fill(rows, 0.0)


class Normalizer(nn.Module, ABC):
    """A map from a row of scores (log κ, −∞ where a key is masked) to a row of weights.

    A row without an allowed key gets weights of zero. ``averages`` says whether the weights of every other
    row are non-negative and sum to one.
    """

    averages: bool
    of_vectors: bool = False  # True if it also reads queries and keys, which are then given beside the scores

    @abstractmethod
    def forward(self, scores: Scores) -> Weights:
        """The weights of the scores."""

    def of_values(self, values: Tensor) -> Weights:
        """The weights of a signed kernel's values (zero where masked) instead of scores.

        Raises:
            ValueError: if the normalizer is defined on scores only.
        """
        raise ValueError(f"{self!r} needs scores, and a kernel that may be negative has none")


def softmax(scores: Scores) -> Weights:
    """Softmax over keys, with zeros and zero gradients in a row of −∞ only."""
    empty = empty_rows(scores)
    return zero_in(empty, torch.softmax(zero_in(empty, scores), -1))
