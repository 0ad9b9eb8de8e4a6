"""Mesa: a memory that is ridge regression on all pairs read."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from gkalib.kernels.base import positive
from gkalib.layers.memory import MemoryAttention

__all__ = ["MesaAttention"]


class MesaAttention(MemoryAttention):
    r"""The prediction at the query of the ridge regression of all values on all keys so far.

    $$\mathrm{out}_t = G_t (H_t + \lambda I)^{-1} q_t, \qquad G_t = a_t G_{t-1} + v_t k_t^\top, \qquad
    H_t = a_t H_{t-1} + k_t k_t^\top$$

    λ does not fade; recursive least squares, which starts from it, would let it. Every chunk is solved by
    conjugate gradients (see ``Memory``).

    Args:
        dim: D.
        num_heads: h.
        ridge: λ at the start; log λ is learned, one a head.
        layer: the arguments of ``MemoryAttention``.

    Raises:
        ValueError: if ``ridge`` is not positive, or as ``MemoryAttention``.

    References:
        von Oswald et al., MesaNet, 2025. Chapter 15 teaches it.
    """

    rule = "mesa"
    gates = ("decay",)

    def __init__(self, dim: int, num_heads: int = 8, *, ridge: float = 1.0, **layer: Any):
        super().__init__(dim, num_heads, **layer)
        positive("mesa", "ridge", ridge)
        self.log_ridge = nn.Parameter(torch.full((num_heads,), math.log(ridge), **self.factory))

    def ridge(self) -> Tensor:
        return self.log_ridge.exp()
