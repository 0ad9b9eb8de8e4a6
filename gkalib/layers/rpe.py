"""Kernelized attention with relative positions: a feature kernel times a learned kernel of the lag."""

from typing import Any

from torch import Tensor

from gkalib.kernels import Elu, Kernel, LagTable, PositiveRandom
from gkalib.kernels.base import positive
from gkalib.layers.base import Smoother
from gkalib.layers.parts import drawn_seed, feature_count
from gkalib.shapes import check_known
from gkalib.smoothing import Cache

__all__ = ["RelativePositionAttention"]

FEATURES = ("positive-random", "elu")


class RelativePositionAttention(Smoother):
    r"""Linear attention whose weights also depend on the lag, each by a number of its own.

    $$w_{ij} \propto e^{b_{i-j}}\, \varphi(\hat q_i)^\top \varphi(\hat k_j), \qquad \hat q = q / \|q\|$$

    With b = 0 it is Performer on normalized queries and keys, or the linear transformer with
    ``features="elu", normalize=False``. The sums are those of a Toeplitz matrix: ``method="toeplitz"``
    computes them by Fourier transforms, ``"dense"``, which ``"auto"`` takes, pair by pair; both are exact for
    the φ drawn.

    Args:
        dim: D.
        num_heads: h.
        length: the number of tokens that the table of lags is made for; b is ``[h, 2 · length − 1]``, zero at
            the start.
        features: φ, ``"positive-random"`` as in the paper or ``"elu"``.
        num_features: r, of the positive random features; None is ⌊d ln d⌋. The heads share them.
        normalize: whether queries and keys are normalized. They have length 1 under positive random features,
            and √d, root mean square one, under elu.
        scale: s; positive random features estimate exp(s q̂·k̂). The paper has 1, so that content can change
            a weight by a factor of e² at most.
        seed: of the features; None takes one from PyTorch's generator, as a parameter does.
        layer: the arguments of ``Smoother``; with ``normalize``, ``qk_norm`` and ``norm_layer`` are not read.

    Raises:
        ValueError: in use, if there are more tokens than ``length``.

    References:
        Luo et al., Stable, Fast and Accurate: Kernelized Attention with Relative Positional Encoding, 2021.
        Chapter 13 teaches it.
    """

    sized = True
    leading = ()

    def __init__(  # the slots of the layer, all by keyword
        self,
        dim: int,
        num_heads: int = 8,
        *,
        length: int | None = None,
        features: str = "positive-random",
        num_features: int | None = None,
        normalize: bool = True,
        scale: float = 1.0,
        seed: int | None = None,
        **layer: Any,
    ):
        norm = {"qk_norm": True, "norm_layer": None} if normalize else {}
        super().__init__(dim, num_heads, **(layer | norm))
        if length is None or length < 1:
            raise ValueError(f"rpe: needs length=, the number of tokens of its table of lags, not {length}")
        check_known("rpe", "features", features, FEATURES)
        positive("rpe", "scale", scale)
        count = feature_count("rpe", self.head_dim, num_features)
        content: Kernel = Elu()
        if features == "positive-random":
            # HeadNorm makes vectors of length √d, so s / d times their product is s · cosine.
            scale = scale / self.head_dim if normalize else scale
            seed = drawn_seed(seed)
            content = PositiveRandom(self.head_dim, count, scale=scale, seed=seed, stabilizer="row")
        self.kernel = (content * LagTable(num_heads, length)).to(**self.factory)

    def project(self, x: Tensor, context: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        self._check("", max(x.shape[1], context.shape[1]))
        return super().project(x, context)

    def cache(self, batch: int, length: int) -> Cache:
        self._check("a cache of ", length)
        return super().cache(batch, length)

    def _check(self, what: str, tokens: int) -> None:
        """Refuse more tokens than the kernel's table of lags, if it has one, is made for."""
        for table in self.kernel.modules():
            if isinstance(table, LagTable) and tokens > table.length:
                raise ValueError(f"rpe: {what}{tokens} tokens, its table of lags is made for {table.length}")
