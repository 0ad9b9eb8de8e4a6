"""The exponential dot-product kernel: attention's own."""

import math

from torch import Tensor

from gkalib.kernels.base import Form, Kernel, heads_of, over_heads, positive, written
from gkalib.shapes import Key, Query, Scores


class ExpDot(Kernel):
    r"""The exponential dot-product kernel of softmax attention.

    $$\kappa(q, k) = \exp(s\, q^\top k)$$

    Args:
        scale: s, a positive number, 0-d tensor or one value per head ``[h]``; None is 1/√d, d the head
            dimension.

    Raises:
        ValueError: if ``scale`` is not positive and finite, or of another shape.

    References:
        Vaswani et al., Attention is all you need, 2017, equation 1. Chapter 4 compares it with the Gaussian.
    """

    def __init__(self, scale: float | Tensor | None = None):
        super().__init__()
        self.scale = None if scale is None else positive("ExpDot", "scale", scale)

    def log(self, query: Query, key: Key) -> Scores:
        return over_heads(self._scale(query.shape[-1])) * (query @ key.mT)

    def form(self, head_dim: int) -> Form:
        return Form(self._scale(head_dim))

    def heads(self) -> int | None:
        return heads_of(self.scale)

    def extra_repr(self) -> str:
        return "" if self.scale is None else f"scale={written(self.scale)}"

    def _scale(self, head_dim: int) -> float | Tensor:
        return 1 / math.sqrt(head_dim) if self.scale is None else self.scale
