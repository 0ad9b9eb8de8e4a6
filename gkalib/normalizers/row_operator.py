"""A learned operator on rows of scores, KArAt's answer to softmax: nothing keeps its rows averages."""

import math
from typing import Any, final

import torch
from torch import Tensor, nn

from gkalib.normalizers.averages import nearest_on_simplex
from gkalib.normalizers.base import Normalizer
from gkalib.normalizers.kan import Basis, Fourier, Units
from gkalib.shapes import Scores, Weights

ORDERS = ("mix_after", "mix_before", "two_layers")


@final
class Mix(nn.Module):
    """A matrix per head ``[h p q]``, applied to a row.

    Args:
        heads, inputs, outputs: h, q and p.
        variance: of the entries' normal draws.
    """

    def __init__(self, heads: int, inputs: int, outputs: int, *, variance: float, **factory: Any):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(heads, outputs, inputs, **factory))
        nn.init.normal_(self.weight, std=math.sqrt(variance))
        self.macs = inputs * outputs

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.to(x.dtype).mT


@final
class RowOperator(Normalizer):
    r"""Weights as a learned function of the whole row of scores: sums of learned functions of each.

    $$w_{i\cdot} = W \hat\Phi(a_{i\cdot}), \qquad \hat\Phi(a)_p = \sum_{q=1}^{N} \varphi_{pq}(a_q), \qquad
    \hat\Phi \text{ is } r \times N,\; W \text{ is } N \times r$$

    The weights may be negative and need not sum to one. A unit belongs to a key's position: the operator is
    tied to N keys, its output changes if they are permuted, and it takes no mask.

    Args:
        heads: h, one operator each.
        keys: N, the length of a row.
        basis: φ; None is ``Fourier(3)``.
        rank: r; None is the full operator Φ, N × N units and no W.
        order: ``"mix_after"`` W Φ̂(a); ``"mix_before"`` Φ̂(W a), W r × N; ``"two_layers"`` Φ̂₂(Φ̂₁(a)).
        projection: None; ``"after"``, the weights are projected onto the probability simplex; ``"before"``,
            the r numbers between the two steps are, and the rows are still no averages.
        init: ``"damped"``, at which Φ̂'s outputs have variance one for standard normal scores and the weights
            variance 1/N, or ``"paper"``: coefficients N(0, 1), and W, whose start is not published, as 1/√r
            times a normal draw.
        units: further arguments of ``Units``: ``base``, ``unit_scales``, ``device``, ``dtype``.

    Raises:
        ValueError: if the rank is not between 1 and N or an option is unknown; in use, if a row has another
            length or a masked key.

    References:
        Maity et al., Kolmogorov–Arnold attention, 2025, equations 1 and 5, algorithms 1 and 2. Chapter 9
        teaches it.
    """

    def __init__(
        self,
        heads: int,
        keys: int,
        *,
        basis: Basis | None = None,
        rank: int | None = 12,
        order: str = "mix_after",
        projection: str | None = None,
        init: str = "damped",
        **units: Any,
    ):
        super().__init__()
        if heads < 1 or keys < 1:
            raise ValueError(f"an operator needs at least one head and one key, not {heads} and {keys}")
        if rank is not None and rank < 1:
            raise ValueError(f"rank must be at least 1, or None for the full operator, not {rank}")
        if rank is not None and rank > keys:
            raise ValueError(f"rank {rank} is above the {keys} tokens")
        if order not in ORDERS:
            raise ValueError(f"no order {order!r}. Known: {', '.join(ORDERS)}")
        if projection not in (None, "after", "before"):
            raise ValueError(f"projection must be None, 'after' or 'before', not {projection!r}")
        if rank is None and (order != "mix_after" or projection == "before"):
            raise ValueError("the full operator (rank None) is one step: it has no order and no 'before'")
        self.num_heads, self.keys, self.order, self.projection = heads, keys, order, projection
        self.averages = projection == "after"
        basis = Fourier() if basis is None else basis
        factory = {name: units.get(name) for name in ("device", "dtype")}
        options = {"init": init, **units}

        def mix(inputs: int, outputs: int, variance: float) -> Mix:
            variance = variance / inputs if init == "damped" else 1 / inputs
            return Mix(heads, inputs, outputs, variance=variance, **factory)

        def table(inputs: int, outputs: int, variance: float) -> Units:
            return Units(heads, inputs, outputs, basis, variance=variance, **options)

        if rank is None:
            self.first, self.second = table(keys, keys, 1 / keys), None
        else:
            self.first = (mix if order == "mix_before" else table)(keys, rank, 1.0)
            self.second = (mix if order == "mix_after" else table)(rank, keys, 1 / keys)

    @property
    def mix(self) -> Tensor | None:
        """W ``[h N r]`` where the weights are W times features and are not projected, else None."""
        if not isinstance(self.second, Mix) or self.projection == "after":
            return None
        return self.second.weight

    @property
    def macs_per_row(self) -> int:
        """Multiplications for one row of all heads as KArAt counts: h (3G + 1) r N for W Φ̂(a), Φ̂ Fourier."""
        return self.num_heads * (self.first.macs + (0 if self.second is None else self.second.macs))

    def features(self, scores: Scores) -> Tensor:
        """The r numbers ``[b h n r]`` between the two steps: with ``mix``, out = features (Wᵀ V)."""
        self._check(scores)
        between = self.first(scores)
        return nearest_on_simplex(between) if self.projection == "before" else between

    def forward(self, scores: Scores) -> Weights:
        between = self.features(scores)
        weights = between if self.second is None else self.second(between)
        return nearest_on_simplex(weights) if self.projection == "after" else weights

    def check_sizes(self, heads: int, keys: int) -> None:
        """Raise ``ValueError`` if the operator was not built for so many heads and keys."""
        if keys != self.keys:
            raise ValueError(f"RowOperator: was built for {self.keys} keys, given {keys}")
        if heads != self.num_heads:
            raise ValueError(f"RowOperator: has {self.num_heads} heads, the scores {heads}")

    def _check(self, scores: Scores) -> None:
        self.check_sizes(scores.shape[-3], scores.shape[-1])
        # While a graph is traced there are no numbers to look at.
        if not torch.compiler.is_compiling() and not scores.is_meta and scores.isneginf().any():
            raise ValueError("RowOperator: takes no mask: a function of the whole row has no place for −∞")

    def extra_repr(self) -> str:
        return (
            f"heads={self.num_heads}, keys={self.keys}, order={self.order!r}, projection={self.projection!r}"
        )
