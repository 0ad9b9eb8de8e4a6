"""Skyformer: unnormalized Gaussian attention through landmarks among queries and keys."""

from typing import Any

from gkalib.kernels import Gaussian
from gkalib.kernels.base import positive
from gkalib.layers.base import Smoother
from gkalib.normalizers import Unnormalized
from gkalib.smoothing import Skyformer

__all__ = ["SkyformerAttention"]


class SkyformerAttention(Smoother):
    r"""Kernelized attention, the Gaussian's values as weights, by landmarks among queries and keys at once.

    $$C_{ij} = \exp\Big(-\frac{\|q_i - k_j\|^2}{2\sqrt d}\Big), \qquad
    C = D_Q^{-1/2}\, e^{Q K^\top/\sqrt d}\, D_K^{-1/2}, \qquad D_Q = \mathrm{diag}\, e^{\|q_i\|^2/\sqrt d}$$

    With ``method="dense"`` it is the exact kernelized attention of the same paper.

    Args:
        dim: D.
        num_heads: h.
        length: the number of tokens, to check ``landmarks`` against; None checks when it is used.
        landmarks: how many, even, half of them queries and half keys; None is 128, or as many as there are
            tokens where that is less.
        sigma: the bandwidth; None is d^¼, the temperature of softmax attention. The authors' code has 32^¼
            whatever d is.
        ridge, iterations, sampling, seed: as for ``gkalib.smoothing.Skyformer``.
        layer: the arguments of ``Smoother``.

    Raises:
        ValueError: if half the landmarks are more than the tokens, or an option is out of range.

    References:
        Chen et al., Skyformer, 2021. Chapter 12 teaches it.
    """

    causal = False
    decodes = False
    why_not = "every landmark may be a later token"
    sized = True

    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        *,
        length: int | None = None,
        landmarks: int | None = None,
        sigma: float | None = None,
        ridge: float = 0.1,
        iterations: int | None = 6,
        sampling: str = "uniform",
        seed: int | None = 0,
        **layer: Any,
    ):
        tokens = 128 if length is None else length
        rank = max(2, min(128, tokens // 2 * 2)) if landmarks is None else landmarks
        if length is not None and rank > 2 * length:
            raise ValueError(f"skyformer: landmarks {rank} is above twice the {length} tokens")
        if rank < 2 or rank % 2:
            raise ValueError(f"skyformer: landmarks must be even, half queries and half keys, not {rank}")
        method = Skyformer(rank, ridge=ridge, iterations=iterations, sampling=sampling, seed=seed)
        super().__init__(dim, num_heads, **{"method": method, **layer})
        bandwidth = positive("skyformer", "sigma", self.head_dim**0.25 if sigma is None else sigma)
        self.kernel, self.normalizer = Gaussian(bandwidth), Unnormalized()
