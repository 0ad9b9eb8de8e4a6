"""Kolmogorov–Arnold attention: softmax replaced by a learned operator on each row of scores."""

from typing import Any

from torch import Tensor, nn

from gkalib.kernels import ExpDot
from gkalib.layers.base import Smoother, bind
from gkalib.normalizers import Basis, PerHead, RowOperator, RowSum
from gkalib.normalizers import basis as basis_named
from gkalib.shapes import check_known
from gkalib.smoothing import Problem

__all__ = ["KolmogorovArnoldAttention"]

MODES = ("blockwise", "universal")


class KolmogorovArnoldAttention(Smoother):
    r"""Attention whose weights are a learned function of the row of scores, without softmax.

    $$w_{i\cdot} = W \hat\Phi(a_{i\cdot}), \qquad a_{ij} = q_i^\top k_j / \sqrt d, \qquad
    \hat\Phi(a)_p = \sum_{q} s_{pq} \sum_{m=1}^{G} a_{pqm} \cos(m\,a_q) + b_{pqm} \sin(m\,a_q)$$

    Where the paper is silent: two scales per unit, which reproduce its parameter counts; coefficients and W
    damped at the start; a projection onto the simplex acts on the N weights (``"after"``).

    Args:
        dim: D.
        num_heads: h.
        length: N, the number of tokens that the operators are built for.
        basis: the units' basis: a name of ``gkalib.normalizers.BASES`` or a ``Basis``.
        grid: G, for a basis given by a name that has one; None is the basis's default, 3 for Fourier.
        rank, order, projection, base, unit_scales, init: as for ``RowOperator``.
        mode: ``"blockwise"``, operators of this layer's own, or ``"universal"``: a model makes one operator
            and hands it to all its layers.
        softmax_heads: how many of the heads, the first ones, are softmax attention instead.
        operator: one to use instead of a new one, such as one that other layers have too.
        layer: the arguments of ``Smoother``.

    Raises:
        ValueError: in use, for a mask and for another number of keys.

    References:
        Maity et al., Kolmogorov–Arnold attention, 2025. Chapter 9 teaches it.
    """

    causal = False
    decodes = False
    why_not = "a weight depends on all N scores of its row, those of later keys included"
    sized = True

    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        *,
        length: int | None = None,
        basis: str | Basis = "fourier",
        grid: int | None = None,
        rank: int | None = 12,
        order: str = "mix_after",
        projection: str | None = None,
        base: str = "zero",
        unit_scales: bool = True,
        init: str = "damped",
        mode: str = "blockwise",
        softmax_heads: int = 0,
        operator: RowOperator | None = None,
        **layer: Any,
    ):
        super().__init__(dim, num_heads, **layer)
        check_known("karat", "mode", mode, MODES)
        if mode == "universal" and operator is None:
            raise ValueError(
                "karat: mode 'universal' is one operator for all layers, which a model makes; outside of a "
                "model give operator="
            )
        if operator is None:
            operator = _operator(
                num_heads,
                length=length,
                basis=basis,
                grid=grid,
                softmax_heads=softmax_heads,
                rank=rank,
                order=order,
                projection=projection,
                base=base,
                unit_scales=unit_scales,
                init=init,
                **self.factory,
            )
        if operator.num_heads + softmax_heads != num_heads:
            raise ValueError(
                f"karat: an operator of {operator.num_heads} heads and {softmax_heads} softmax heads are not "
                f"num_heads {num_heads}"
            )
        self.kernel = ExpDot()
        self.normalizer = operator
        if softmax_heads:
            self.normalizer = PerHead([RowSum(), operator], heads=[softmax_heads, operator.num_heads])

    @classmethod
    def for_model(cls, dim: int, num_heads: int, *, length: int) -> type[nn.Module]:
        bound: Any = bind(cls, length=length)
        if bound.options.get("mode") != "universal":
            return bound
        options = {name: bound.options[name] for name in _OPERATOR if name in bound.options}
        return bind(bound, operator=_operator(num_heads, **options))

    def problem(
        self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False, **options: Any
    ) -> Problem:
        keys = x if options.get("context") is None else options["context"]
        for operator in self.normalizer.modules():
            if not isinstance(operator, RowOperator):
                continue
            if attn_mask is not None or options.get("mask") is not None or self.mask is not None:
                raise ValueError(f"karat: takes no mask: {self.why_not}")
            if keys.shape[1] != operator.keys:
                raise ValueError(f"karat: was built for {operator.keys} tokens, given {keys.shape[1]}")
        return super().problem(x, attn_mask, is_causal, **options)


_OPERATOR = (
    *("length", "basis", "grid", "softmax_heads"),
    *("rank", "order", "projection", "base", "unit_scales", "init", "device", "dtype"),
)


def _operator(
    num_heads: int,
    *,
    length: int | None = None,
    basis: str | Basis = "fourier",
    grid: int | None = None,
    softmax_heads: int = 0,
    **options: Any,
) -> RowOperator:
    """The operator of the heads that are not softmax, or an error in the words of the layer's caller."""
    if length is None:
        raise ValueError("karat: needs length, the number of tokens that its operators are built for")
    if not 0 <= softmax_heads < num_heads:
        raise ValueError(f"karat: softmax_heads must be from 0 to {num_heads - 1}, not {softmax_heads}")
    try:
        if isinstance(basis, str):
            basis = basis_named(basis, grid)
        elif grid is not None:
            raise ValueError(f"grid={grid} goes into the basis, which is given as {basis!r}")
        return RowOperator(num_heads - softmax_heads, length, basis=basis, **options)
    except ValueError as error:
        raise ValueError(f"karat: {error}") from error
