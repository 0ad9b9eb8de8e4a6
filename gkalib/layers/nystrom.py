"""Nyströmformer: softmax attention through landmarks, the means of stretches of tokens."""

from typing import Any

from torch import Tensor, nn

from gkalib.kernels import ExpDot
from gkalib.layers.base import Smoother
from gkalib.shapes import check_counts_or_none
from gkalib.smoothing import Nystrom, Problem

__all__ = ["NystromAttention"]


class NystromAttention(Smoother):
    r"""Softmax attention whose weights are three small softmaxes and an inverse.

    $$\mathrm{softmax}(Q \tilde K^\top)\, \mathrm{softmax}(\tilde Q \tilde K^\top)^+\,
    \mathrm{softmax}(\tilde Q K^\top)\, V + \mathrm{conv}(V)$$

    It differs from ``softmax`` in the method alone. Where the tokens do not divide into stretches of one
    length, the lengths differ by one.

    Args:
        dim: D.
        num_heads: h.
        length: the number of tokens, to check ``landmarks`` against; None checks when it is used.
        landmarks: r; None is 64, or all tokens where ``length`` is smaller.
        iterations: steps towards the inverse; None is the pseudo-inverse by a decomposition.
        conv: the size, odd, of a depthwise convolution of the values along the tokens that is added to the
            output, one filter a head; None is none. The authors use 35 on text.
        layer: the arguments of ``Smoother``.

    Raises:
        ValueError: if ``landmarks`` is below 1 or above ``length``, ``iterations`` is below 1, or ``conv`` is
            not odd and positive.

    References:
        Xiong et al., Nyströmformer, 2021. Chapter 12 teaches it.
    """

    causal = False
    decodes = False
    why_not = "a landmark is a mean over tokens, and the inverse mixes all landmarks"
    sized = True

    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        *,
        length: int | None = None,
        landmarks: int | None = None,
        iterations: int | None = 6,
        conv: int | None = None,
        **layer: Any,
    ):
        rank = min(64, length or 64) if landmarks is None else landmarks
        if rank < 1 or (length is not None and rank > length):
            reason = "below 1" if rank < 1 else f"above the {length} tokens"
            raise ValueError(f"nystrom: landmarks {rank} is {reason}")
        check_counts_or_none("nystrom", iterations=iterations)
        if conv is not None and (conv < 1 or conv % 2 == 0):
            raise ValueError(f"nystrom: conv must be an odd size, not {conv}")
        super().__init__(dim, num_heads, **{"method": Nystrom(rank, iterations=iterations), **layer})
        self.kernel = ExpDot()
        self.conv = (
            None
            if conv is None
            else nn.Conv2d(
                num_heads,
                num_heads,
                (conv, 1),
                padding=(conv // 2, 0),
                groups=num_heads,
                bias=False,
                **self.factory,
            )
        )

    def finish(self, out: Tensor, problem: Problem) -> Tensor:
        if self.conv is None:
            return out
        _, _, queries, keys = problem.sizes
        if queries != keys:
            raise ValueError(
                f"nystrom: conv adds a token's value to its own output, and {queries} queries do not "
                f"match {keys} keys"
            )
        exists = problem.allowed()
        value = problem.value if exists is None else problem.value * exists.mT
        return out + self.conv(value)
