"""Softmax attention: the exponential dot-product kernel of projected tokens."""

from typing import Any

from gkalib.kernels import ExpDot
from gkalib.layers.base import Smoother

__all__ = ["SoftmaxAttention"]


class SoftmaxAttention(Smoother):
    r"""Softmax attention, the Nadaraya–Watson smoother of the exponential dot product.

    $$w_{ij} \propto \exp(q_i^\top k_j / \sqrt d), \qquad q = x W_Q,\; k = x W_K,\; v = x W_V$$

    Args:
        dim: D.
        num_heads: h.
        scale: the number in front of the dot product; None is 1/√d.
        layer: the arguments of ``Smoother``.

    References:
        Vaswani et al., Attention is all you need, 2017. Chapter 4 teaches it.
    """

    def __init__(self, dim: int, num_heads: int = 8, *, scale: float | None = None, **layer: Any):
        super().__init__(dim, num_heads, **layer)
        self.kernel = ExpDot(scale)
