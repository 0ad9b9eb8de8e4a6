"""Project the scores onto the probability simplex."""

import torch

from gkalib.normalizers.base import Normalizer, empty_rows
from gkalib.shapes import Scores, Weights


class Simplex(Normalizer):
    r"""The point of the probability simplex nearest to the row of scores, also known as sparsemax.

    $$w_i = \arg\min_{w \ge 0,\, \sum_j w_j = 1} \|w - s_i\|^2 = \max(s_i - \lambda_i, 0)$$

    Its argument is the score log κ itself, not κ.

    References:
        Duchi et al., 2008; Martins and Astudillo, 2016; KArAt algorithm 1. Chapter 9 teaches it.
    """

    averages = True

    def __call__(self, scores: Scores) -> Weights:
        empty = empty_rows(scores)
        scores = scores.masked_fill(empty, 0.0)
        ordered = scores.sort(dim=-1, descending=True).values
        rank = torch.arange(1, scores.shape[-1] + 1, device=scores.device, dtype=scores.dtype)
        # λ if exactly the first r entries stay positive; the true r is the last where entry r is above its λ.
        threshold = (ordered.masked_fill(ordered.isneginf(), 0.0).cumsum(-1) - 1) / rank
        support = (ordered > threshold).sum(-1, keepdim=True)
        weights = (scores - threshold.gather(-1, support - 1)).clamp(min=0)
        return weights.masked_fill(empty, 0.0)

    def __repr__(self) -> str:
        return "Simplex()"
