"""Attention by cosine: queries and keys on a sphere, where the dot product is a Gaussian of the distance."""

import math
from typing import Any

import torch
from torch import nn

from gkalib.kernels import ExpDot, Form, Kernel
from gkalib.layers.base import Smoother
from gkalib.shapes import Key, Lag, Query, Scores, check_known

__all__ = ["QueryKeyNormAttention"]

NORMS = ("l2", "rms")


class ScaledCosine(Kernel):
    r"""The exponential of the cosine of vectors of length √d, times a learned number.

    $$\kappa(q, k) = \exp\big(g\, q^\top k / d\big)$$

    Args:
        g: g at the start.

    References:
        Henry et al., Query-key normalization for transformers, 2020. Chapter 6 teaches it.
    """

    def __init__(self, g: float):
        super().__init__()
        self.g = nn.Parameter(torch.tensor(g, dtype=torch.float64))

    def log(self, query: Query, key: Key, lag: Lag | None = None) -> Scores:
        return self.g / query.shape[-1] * (query @ key.mT)

    def form(self, head_dim: int) -> Form:
        return Form(self.g / head_dim)

    def extra_repr(self) -> str:
        return f"g={self.g.item():.4g}"


class QueryKeyNormAttention(Smoother):
    r"""Softmax attention of normalized queries and keys.

    $$w_{ij} \propto \exp\big(g\, \hat q_i^\top \hat k_j\big) \propto
    \exp\big(-\tfrac g2 \|\hat q_i - \hat k_j\|^2\big), \qquad \hat q = q / \|q\|$$

    With ``norm="l2"`` g is learned, one number a layer, and starts at log₂(L² − L). With ``norm="rms"`` g is
    √d: root-mean-square norm gives q and k the length √d and the score keeps its 1/√d. Both normalize before
    positions are written in, so SuSiE leaves the sphere and rotary positions stay on it.

    Args:
        dim: D.
        num_heads: h.
        norm: ``"l2"``, the paper's, or ``"rms"``, nanochat's.
        length: L; the paper takes the 97.5th percentile of the training sequences' lengths. It sets g's start
            only, and with ``"rms"`` nothing.
        layer: the arguments of ``Smoother``; ``qk_norm`` and ``norm_layer`` are not read.

    Raises:
        ValueError: if ``norm`` is unknown, or with ``"l2"`` the length is missing or below 2.

    References:
        Henry et al., Query-key normalization for transformers, 2020; nanochat. Chapter 6 teaches it.
    """

    sized = True

    def __init__(
        self, dim: int, num_heads: int = 8, *, norm: str = "l2", length: int | None = None, **layer: Any
    ):
        super().__init__(dim, num_heads, **(layer | {"qk_norm": True, "norm_layer": None}))
        check_known("qk_norm", "norm", norm, NORMS)
        self.kernel = ExpDot()  # of vectors of length √d: the cosine times √d
        if norm == "l2":
            if length is None or length < 2:
                raise ValueError(
                    f"qk_norm: g starts at log2(L² − L), which needs length=L of at least 2, not {length}"
                )
            self.kernel = ScaledCosine(math.log2(length**2 - length)).to(**self.factory)
