"""Value-less attention: softmax attention that averages the tokens themselves."""

from typing import Any

import torch
from torch import Tensor, nn

from gkalib.kernels import ExpDot
from gkalib.layers.base import Smoother

__all__ = ["ValuelessAttention"]


class ValuelessAttention(Smoother):
    r"""Softmax attention without a value projection, halfway between softmax attention and GKA.

    $$w_{ij} \propto \exp(q_i^\top k_j / \sqrt d), \qquad q = x W_Q,\; k = x W_K,\; v = x^{(h)} + b$$

    Args:
        dim: D.
        num_heads: h.
        keep_bias: whether b, the bias of the projection that is gone, stays where ``qkv_bias`` asks for
            biases. The paper prints no layout, but 5.28 million parameters for ViT-Ti: with b they are
            5,275,048, without 5,272,744. As rows sum to one, b adds a constant that W_O's bias could add.
        layer: the arguments of ``Smoother``.

    Raises:
        ValueError: if the tokens are not as wide as the heads.

    References:
        Kundu et al., Gaussian Kernel Attention, 2026, section 4.4. Chapter 30 teaches it.
    """

    projections = ("query", "key")

    def __init__(self, dim: int, num_heads: int = 8, *, keep_bias: bool = True, **layer: Any):
        super().__init__(dim, num_heads, **layer)
        start, stop = self.own_channels()
        has_bias = self.qkv_bias and keep_bias
        self.bias = nn.Parameter(torch.zeros(stop - start, **self.factory)) if has_bias else None
        self.kernel = ExpDot()

    def project(self, x: Tensor, context: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        value = self.own_heads(context)
        if self.bias is not None:
            value = value + self.bias.unflatten(0, (self.num_heads, 1, self.head_dim))
        return self.heads(self.query(x)), self.heads(self.key(context)), value
