"""Parallax: local linear attention whose slope is learned in the place of solved for."""

from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from gkalib.kernels import ExpDot
from gkalib.layers.base import Smoother
from gkalib.layers.parts import Rope
from gkalib.normalizers import Dropout, Normalizer, RowSum
from gkalib.smoothing import Problem
from gkalib.smoothing.local_line import LocalLine

__all__ = ["ParallaxAttention"]


class ParallaxAttention(Smoother):
    r"""Softmax attention minus the covariance of values and keys times a learned vector of each query.

    $$\mathrm{out} = \bar v - M r = \bar v\,(1 + r^\top \bar k) - \sum_j \tilde w_j (r^\top k_j)\, v_j,
    \qquad r = x W_R$$

    ``local_linear`` is r = (C + λI)⁻¹(k̄ − q), softmax attention r = 0, where W_R starts. Under
    ``position="rope"`` r is turned as the query is.

    Args:
        dim: D.
        num_heads: h.
        layer: the arguments of ``Smoother``.

    Raises:
        ValueError: in use, if a normalizer is assigned that is not ``RowSum()``.

    References:
        Zuo et al., Parallax, 2026. Chapter 14 teaches it.
    """

    projections = ("query", "key", "value", "slope")
    slope: nn.Linear

    def __init__(self, dim: int, num_heads: int = 8, **layer: Any):
        super().__init__(dim, num_heads, **layer)
        self.kernel = ExpDot()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for parameter in self.slope.parameters():
            nn.init.zeros_(parameter)

    def problem(
        self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False, **options: Any
    ) -> Problem:
        context = x if options.get("context") is None else options["context"]
        slope = self.heads(self.slope(x))
        if isinstance(self.position, Rope):
            at = self._positions(slope, context[:, None], options.get("positions"), options.get("cache"))
            slope = self.position(slope, at[0])
        problem = super().problem(x, attn_mask, is_causal, **options)
        return replace(problem, normalizer=_sloped(problem.normalizer, slope))


def _sloped(normalizer: Normalizer, slope: Tensor) -> Normalizer:
    """A normalizer's weights with the slope's factors, inside a dropout where there is one."""
    if isinstance(normalizer, Dropout):
        return Dropout(_sloped(normalizer.normalizer, slope), normalizer.p).train(normalizer.training)
    if not (isinstance(normalizer, RowSum) and normalizer.eps == 0):
        raise ValueError(f"parallax: fits lines with weights that sum to one, not with {normalizer!r}")
    return LocalLine(slope=slope)
