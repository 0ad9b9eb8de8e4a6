"""Linformer: softmax attention over a few keys that learned matrices make of all."""

from typing import Any

import torch
from torch import nn

from gkalib.kernels import ExpDot
from gkalib.layers.base import Smoother
from gkalib.shapes import check_counts, check_known
from gkalib.smoothing import Linformer

__all__ = ["LinformerAttention"]

SHARES = ("none", "heads", "values")


class LinformerAttention(Smoother):
    r"""Softmax attention over r linear combinations of the keys, and of the values.

    $$\mathrm{softmax}\Big(\frac{Q (E K)^\top}{\sqrt d}\Big)\, F V, \qquad E, F \in \mathbb R^{r \times N}$$

    It differs from ``softmax`` in the method, which owns the parameters E and F, and like them it is made for
    a number of tokens; shorter sequences use the first columns.

    Args:
        dim: D.
        num_heads: h.
        length: N, the most tokens attended to.
        rank: r; None is 256, or a quarter of ``length`` where that is less.
        share: ``"heads"``, one E and one F for all heads; ``"none"``, one of each a head; ``"values"``, one
            for all heads and for values too, E = F.
        layer: the arguments of ``Smoother``. E and F start uniform within ±1/√r; with a ``method`` given
            here there are none.

    Raises:
        ValueError: if ``rank`` is below 1 or above ``length``, or ``share`` is unknown.

    References:
        Wang et al., Linformer, 2020. Chapter 12 teaches it.
    """

    causal = False
    decodes = False
    why_not = "every new key is made of all tokens, later ones too"
    sized = True

    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        *,
        length: int,
        rank: int | None = None,
        share: str = "heads",
        **layer: Any,
    ):
        check_counts("linformer", length=length)
        rank = min(256, max(1, length // 4)) if rank is None else rank
        if not 1 <= rank <= length:
            reason = "below 1" if rank < 1 else f"above the {length} tokens"
            raise ValueError(f"linformer: rank {rank} is {reason}")
        check_known("linformer", "share", share, SHARES)
        super().__init__(dim, num_heads, **layer)
        self.kernel = ExpDot()
        if self.method == "auto":
            shape = (num_heads, rank, length) if share == "none" else (rank, length)
            maps = [
                nn.Parameter(torch.empty(shape, **self.factory).uniform_(-(rank**-0.5), rank**-0.5))
                for _ in range(1 if share == "values" else 2)
            ]
            self.method = Linformer(*maps)
