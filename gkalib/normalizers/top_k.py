"""Keep the k most similar keys and average over them."""

import torch

from gkalib.normalizers.base import Normalizer, softmax
from gkalib.shapes import Scores, Weights


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
        if k < 1:
            raise ValueError(f"TopK: k must be at least 1, not {k}")
        self.k = k

    def __call__(self, scores: Scores) -> Weights:
        order = scores.detach().argsort(dim=-1, descending=True, stable=True)
        kept = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, order[..., : self.k], True)
        return softmax(scores.masked_fill(~kept, -torch.inf))

    def __repr__(self) -> str:
        return f"TopK({self.k})"
