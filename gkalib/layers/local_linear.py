"""Local linear attention: softmax attention that fits a line at every query in the place of a constant."""

from typing import Any

import torch

from gkalib.kernels import ExpDot
from gkalib.kernels.base import positive
from gkalib.layers.base import Smoother
from gkalib.smoothing.local_line import LocalLine

__all__ = ["LocalLinearAttention"]


class LocalLinearAttention(Smoother):
    r"""The prediction at the query of a line fitted to the values, with softmax attention's weights w̃.

    $$\mathrm{out} = \bar v - M (C + \lambda I)^{-1} (\bar k - q), \qquad
    M = \sum_j \tilde w_j (v_j - \bar v)(k_j - \bar k)^\top, \qquad
    C = \sum_j \tilde w_j (k_j - \bar k)(k_j - \bar k)^\top$$

    It is ``smooth(…, degree=1, ridge=λ)``. Without λ affine functions of the key are reproduced exactly;
    where λ grows it becomes softmax attention. ``method="conjugate"`` forms no C.

    Args:
        dim: D.
        num_heads: h.
        ridge: λ at the start, of every head. The first rows under a causal mask need one.
        learn: whether log λ is learned, one a head.
        layer: the arguments of ``Smoother``.

    Raises:
        ValueError: if ``ridge`` is not positive.

    References:
        Zuo et al., Local Linear Attention, 2025, whose penalty stands beside weights that are not normalized:
        theirs is λ times their sum. Chapter 14 teaches it.
    """

    leading = ()

    def __init__(self, dim: int, num_heads: int = 8, *, ridge: float = 1.0, learn: bool = True, **layer: Any):
        super().__init__(dim, num_heads, **layer)
        positive("local_linear", "ridge", ridge)
        self.kernel = ExpDot()
        each = torch.full((num_heads,), ridge, dtype=torch.float64)
        self.normalizer = LocalLine(each, learn=True).to(**self.factory) if learn else LocalLine(ridge)
