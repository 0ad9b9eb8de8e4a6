"""A kernel of the lag with one learned number per lag."""

import torch
from torch import nn

from gkalib.kernels.base import Kernel
from gkalib.shapes import Key, Lag, Query, Scores


class LagTable(Kernel):
    r"""A kernel of the signed lag, free at every lag.

    $$\kappa(q_i, k_j) = e^{b_{i - j}}, \qquad -L < i - j < L$$

    b is a parameter ``[h, 2L − 1]``, zero at the start: at index 0 the lag −(L − 1), a key far ahead of its
    query, at index L − 1 the lag 0. A lag beyond the table counts as the last one in it. The table has both
    signs, as the paper's b_{j−i} does, so the kernel need not be symmetric and has no ``form``.

    Args:
        num_heads: h, the number of heads.
        length: L, the number of tokens that the table is made for.

    Raises:
        ValueError: if a count is below 1, or a lag is missing or not a whole number in use.

    References:
        Luo et al., Stable, Fast and Accurate: Kernelized Attention with Relative Positional Encoding, 2021.
        Chapter 13 teaches it.
    """

    of_lag = True
    of_content = False

    def __init__(self, num_heads: int, length: int):
        super().__init__()
        if num_heads < 1 or length < 1:
            raise ValueError(
                f"LagTable: num_heads and length must be at least 1, not {num_heads} and {length}"
            )
        self.length = length
        self.bias = nn.Parameter(torch.zeros(num_heads, 2 * length - 1))

    def log(self, query: Query, key: Key, lag: Lag | None = None) -> Scores:
        if lag is None:
            raise ValueError(
                "LagTable: a kernel of the lag needs lag, query position minus key position "
                "[n m]; smooth and attention_weights pass it"
            )
        if lag.is_floating_point():
            raise ValueError(f"LagTable: positions must be whole numbers, so that lags are, not {lag.dtype}")
        batch, heads, queries, _ = query.shape
        bias = self.bias[:, (lag + self.length - 1).clamp(0, 2 * self.length - 2)]
        bias = bias.transpose(0, 1) if lag.ndim == 3 else bias
        return bias.expand(batch, heads, queries, key.shape[-2])

    def heads(self) -> int:
        return self.bias.shape[0]
