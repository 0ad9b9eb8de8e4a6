"""Different heads, different normalizers."""

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from gkalib.normalizers.base import Normalizer
from gkalib.shapes import Scores, Weights


@final
class PerHead(nn.Module, Normalizer):
    """Each normalizer serves its own group of heads, in the order given.

    Args:
        normalizers: the normalizers.
        heads: how many heads each serves; None is one each.

    Raises:
        ValueError: if the counts do not fit; in use, if the scores have another number of heads.

    Chapter 9 teaches it.
    """

    def __init__(self, normalizers: Sequence[Normalizer], *, heads: Sequence[int] | None = None):
        super().__init__()
        self.heads = [1] * len(normalizers) if heads is None else list(heads)
        if not normalizers or len(self.heads) != len(normalizers) or min(self.heads) < 1:
            raise ValueError(
                f"PerHead: {len(normalizers)} normalizers cannot serve {self.heads} heads: one count of at "
                "least 1 each"
            )
        self.normalizers = list(normalizers)
        self.learned = nn.ModuleList(each for each in normalizers if isinstance(each, nn.Module))
        self.averages = all(each.averages for each in normalizers)

    @property
    def macs_per_row(self) -> int:
        """Multiplications that the learned ones spend on one row of all heads."""
        return sum(getattr(each, "macs_per_row", 0) for each in self.normalizers)

    def forward(self, scores: Scores) -> Weights:
        return self._each(scores, [each.__call__ for each in self.normalizers])

    def of_values(self, values: Tensor) -> Weights:
        return self._each(values, [each.of_values for each in self.normalizers])

    def _each(self, rows: Tensor, functions: list) -> Weights:
        if rows.shape[-3] != sum(self.heads):
            raise ValueError(f"PerHead: serves {sum(self.heads)} heads, given {rows.shape[-3]}")
        groups = rows.split(self.heads, dim=-3)
        return torch.cat([weigh(group) for weigh, group in zip(functions, groups, strict=True)], dim=-3)

    def extra_repr(self) -> str:
        return f"{self.normalizers}, heads={self.heads}"
