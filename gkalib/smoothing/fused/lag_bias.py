"""A bias by lag in the programs' own layout, and its gradient: tiles sheared so that lags become columns."""

import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from gkalib.smoothing.fused.scores import LOG2_E

PAD: tl.constexpr = tl.constexpr(256)
"""Entries on either side of a padded table: no block is larger, so none reads outside it."""


@triton.jit
def lag_scores(table, row_start, column_start, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The bias of a block of rows and columns, [ROWS COLUMNS]; table points at one head's padded table.

    Row i and column j of a problem with this many columns are at entry i − j + columns − 1 + PAD.
    """
    corner = table + (row_start - column_start + columns - 1 + PAD)
    return tl.load(corner + tl.arange(0, ROWS)[:, None] - tl.arange(0, COLUMNS)[None, :])


@triton.jit
def lag_scores_transposed(
    table, row_start, column_start, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """The same block as lag_scores with the columns first, [COLUMNS ROWS]."""
    corner = table + (row_start - column_start + columns - 1 + PAD)
    return tl.load(corner + tl.arange(0, ROWS)[None, :] - tl.arange(0, COLUMNS)[:, None])


def padded(table: Tensor) -> Tensor:
    """The table ``[h n+m−1]`` in base 2, with zeros on either side that blocks read and masks cancel."""
    return F.pad(table * LOG2_E.value, (PAD.value, PAD.value))
