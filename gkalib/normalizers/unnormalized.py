"""Leave the kernel's values as they are."""

from torch import Tensor

from gkalib.normalizers.base import Normalizer
from gkalib.shapes import Scores, Weights


class Unnormalized(Normalizer):
    r"""The kernel's values as weights, with no denominator.

    $$w_{ij} = \kappa_{ij}$$

    References:
        The non-softmax form of RBF attention; Skyformer's kernelized attention. Chapter 6 teaches it.
    """

    averages = False

    def __call__(self, scores: Scores) -> Weights:
        return scores.exp()

    def of_values(self, values: Tensor) -> Weights:
        return values

    def __repr__(self) -> str:
        return "Unnormalized()"
