"""Attention by cosine: queries and keys on a sphere, where the dot product is a Gaussian of the distance."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from gkalib.kernels import ExpDot, Kernel
from gkalib.layers.base import Smoother

NORMS = ("l2", "rms")


class Attention(Smoother):
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
        if norm not in NORMS:
            raise ValueError(f"qk_norm: no norm {norm!r}. Known: {', '.join(NORMS)}")
        self.g = None
        if norm == "l2":
            if length is None or length < 2:
                raise ValueError(
                    f"qk_norm: g starts at log2(L² − L), which needs length=L of at least 2, not {length}"
                )
            self.g = nn.Parameter(torch.tensor(math.log2(length**2 - length), **self.factory))
        self.query, self.key, self.value = self.linear(), self.linear(), self.linear()

    def project(self, x: Tensor, context: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.heads(self.query(x)), self.heads(self.key(context)), self.heads(self.value(context))

    def kernel(self) -> Kernel:
        # HeadNorm makes vectors of length √d, so g · cosine is g / d times their product.
        return ExpDot(None if self.g is None else self.g / self.head_dim)
