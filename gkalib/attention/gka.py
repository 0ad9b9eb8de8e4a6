"""Gaussian Kernel Attention: no query, key or value projections, one bandwidth per head."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from gkalib.attention.base import Smoother
from gkalib.kernels import Gaussian, Kernel
from gkalib.masks import Mask, Window
from gkalib.normalizers import Normalizer, RowSum


class Attention(Smoother):
    r"""Gaussian smoothing of the tokens' own heads.

    $$w_{ij} = \frac{\exp(-\|x_i - x_j\|^2 / 2\sigma_h^2)}{\sum_{j'} \exp(-\|x_i - x_{j'}\|^2 / 2\sigma_h^2)
    + \varepsilon}, \qquad v = q = k = x^{(h)}, \qquad \sigma_h = e^{\ell_h}$$

    The language form has ``position="rope"`` and ``qk_norm=True``. The paper prints the placed features as
    values too, which writes absolute positions into them; ``values="plain"`` keeps them out, and then a cache
    stores two tensors instead of one.

    Args:
        dim: D.
        num_heads: h.
        sigma: σ at the start; None is d^¼, at which normalized tokens have the temperature of softmax
            attention (the paper does not say where σ starts).
        eps: ε; the paper's vision equations have it, its language equation does not.
        window: with a causal mask the number of keys a query sees, itself included (the paper's W); without,
            |i − j| < window. None is all.
        values: ``"placed"``, the features that are compared, or ``"plain"``, the tokens before normalization
            and position.
        layer: the arguments of ``Smoother``.

    Raises:
        ValueError: if ``sigma`` is not positive, ``window`` is below 1, or ``values`` is unknown.

    References:
        Gaussian Kernel Attention, 2026, equations 1 to 11. Chapter 7 teaches it.
    """

    projects_values = False

    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        *,
        sigma: float | None = None,
        eps: float = 0.0,
        window: int | None = None,
        values: str = "placed",
        **layer: Any,
    ):
        super().__init__(dim, num_heads, **layer)
        start = self.head_dim**0.25 if sigma is None else sigma
        if not (math.isfinite(start) and start > 0):
            raise ValueError(f"gka: sigma must be positive and finite, not {sigma}")
        if values not in ("placed", "plain"):
            raise ValueError(f"gka: values must be 'placed' or 'plain', not {values!r}")
        self.eps, self.window, self.values = eps, None if window is None else Window(window), values
        self.log_sigma = nn.Parameter(torch.full((num_heads,), math.log(start), **self.factory))

    def project(self, x: Tensor, context: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query = self.own_heads(x)
        key = query if context is x else self.own_heads(context)
        return query, key, key if self.values == "placed" else self.own_heads(context)

    def kernel(self) -> Kernel:
        return Gaussian(self.log_sigma.exp())

    def normalizer(self) -> Normalizer:
        return RowSum(eps=self.eps)

    def mask(self) -> Mask | None:
        return self.window
