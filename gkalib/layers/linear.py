"""The linear transformer: a kernel with as many features as the head has numbers."""

from typing import Any

from gkalib.kernels import Elu
from gkalib.layers.base import Smoother
from gkalib.normalizers import RowSum
from gkalib.shapes import check_not_negative

__all__ = ["LinearAttention"]


class LinearAttention(Smoother):
    r"""Attention whose kernel is an inner product of features, summed over the keys first.

    $$\mathrm{out}_i = \frac{\varphi(q_i)^\top \sum_j \varphi(k_j) v_j^\top}{\varphi(q_i)^\top \sum_j
    \varphi(k_j) + \varepsilon}, \qquad \varphi(x) = \operatorname{elu}(x) + 1$$

    Queries and keys are not scaled by 1/√d. With ``cache=Recurrent()`` it decodes from sums of a fixed size.

    Args:
        dim: D.
        num_heads: h.
        eps: ε, in the authors' code 1e-6; the paper has none.
        layer: the arguments of ``Smoother``.

    Raises:
        ValueError: if ``eps`` is negative or not finite.

    References:
        Katharopoulos et al., Transformers are RNNs, 2020, equations 4 to 7. Chapter 11 teaches it.
    """

    def __init__(self, dim: int, num_heads: int = 8, *, eps: float = 1e-6, **layer: Any):
        super().__init__(dim, num_heads, **layer)
        check_not_negative("linear", "eps", eps)
        self.kernel, self.normalizer = Elu(), RowSum(eps=eps)
