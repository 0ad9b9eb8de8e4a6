"""Gaussian Kernel Attention: no query, key or value projections, one bandwidth per head."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gkalib.kernels import Gaussian
from gkalib.kernels.base import positive
from gkalib.layers.base import Smoother
from gkalib.masks import Window
from gkalib.normalizers import RowSum
from gkalib.shapes import check_counts_or_none, check_known, check_not_negative

__all__ = ["GaussianKernelAttention"]


class GaussianKernelAttention(Smoother):
    r"""Gaussian smoothing of the tokens' own heads.

    $$w_{ij} = \frac{m_{ij}\exp(-\|x_i - x_j\|^2 / 2\sigma_h^2)}
    {\sum_l m_{il}\exp(-\|x_i - x_l\|^2 / 2\sigma_h^2) + \varepsilon},
    \qquad v = q = k = x^{(h)}, \qquad \sigma_h = e^{\ell_h}$$

    This is the vision form. The language form has ``qk_norm=True, position="rope"``: x is then each head's
    vector at root mean square one, turned by its position, and, as the paper prints it, the value too. That
    writes absolute positions into the output; ``values="plain"`` keeps them out, and a cache then stores two
    tensors instead of one. Unlike ``rbf`` nothing but ℓ and W_O is learned.

    Args:
        dim: D.
        num_heads: h.
        sigma: σ at the start, for all heads or one for each; None is d^¼, at which normalized tokens have the
            temperature of softmax attention. The paper does not say where σ starts.
        eps: ε, in units of the kernel. The paper's equations 4 and 7 have it, 11 and 12 do not, and no value
            is printed.
        window: None is all keys. With a causal mask W is the paper's, i − W < j ≤ i, exactly W keys with the
            query's own. Without, which the paper leaves open, it is symmetric: |i − j| < W, 2W − 1 keys.
        values: ``"placed"``, the vectors that are compared, or ``"plain"``, the heads of the tokens before
            norm and position.
        layer: the arguments of ``Smoother``.

    Raises:
        ValueError: if ``sigma`` is not positive or not one a head, ``eps`` is negative, ``window`` is below
            1, ``values`` is unknown, or the tokens are not as wide as the heads.

    References:
        Kundu et al., Gaussian Kernel Attention, 2026, equations 2 to 7 and 11. Chapter 7 teaches it.
    """

    projections = ()

    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        *,
        sigma: float | Sequence[float] | None = None,
        eps: float = 0.0,
        window: int | None = None,
        values: str = "placed",
        **layer: Any,
    ):
        super().__init__(dim, num_heads, **layer)
        self.own_channels()
        check_not_negative("gka", "eps", eps)
        check_counts_or_none("gka", window=window)
        check_known("gka", "values", values, ("placed", "plain"))
        # In float64, so that its logarithm is rounded once.
        start = torch.as_tensor(self.head_dim**0.25 if sigma is None else sigma, dtype=torch.float64)
        positive("gka", "sigma", start)
        self.values = values
        self.kernel = Gaussian(start if start.ndim else start.repeat(num_heads), learn=True).to(
            **self.factory
        )
        self.normalizer = RowSum(eps=eps)
        self.mask = None if window is None else Window(window)

    def project(self, x: Tensor, context: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query = self.own_heads(x)
        key = query if context is x else self.own_heads(context)
        return query, key, key if self.values == "placed" else self.own_heads(context)
