"""Gaussian Process Attention: softmax attention with a bank of decaying periodic kernels of the lag."""

from typing import Any

from gkalib.kernels import DecayingPeriodicBank, ExpDot
from gkalib.kernels.position import check_start
from gkalib.layers.base import Smoother

__all__ = ["GaussianProcessAttention"]


class GaussianProcessAttention(Smoother):
    r"""Softmax attention times the exponential of a kernel bank of the lag, one bank per head.

    $$w_{ij} \propto \exp\big(q_i^\top k_j / \sqrt d\big)\, e^{G(|i - j|)}, \qquad
    G(\Delta) = \sum_{m=1}^{M} \sigma_m^2 e^{-\Delta/\ell_m}
    \exp\left(-2\alpha_m^2 \sin^2(\Delta/\tau_m)\right)$$

    Without ``position`` the bank is all that the layer knows of places, the paper's second arm;
    ``position="rope"`` is its equation 6. The bank adds 4M parameters per head to softmax attention, which it
    equals where every σ is zero. d is the width of a head, where the paper's formula names the token's. The
    starting values are the paper's, which make G(0) = M σ² = 64; log ℓ and log τ as parameters are ours.

    Args:
        dim: D.
        num_heads: h.
        num_terms: M.
        alpha: α at the start.
        sigma: σ at the start.
        length: ℓ at the start, in tokens.
        tau: the least and the greatest τ at the start, in tokens; a term has the period πτ.
        layer: the arguments of ``Smoother``.

    Raises:
        ValueError: if ``num_terms`` is below 1, ``length`` or ``tau`` is not positive, or a number is not
            finite.

    References:
        Gaussian Process Attention with Kernel Modeling, equations 3 to 6. Chapter 8 teaches it.
    """

    leading = ()

    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        *,
        num_terms: int = 64,
        alpha: float = 1.0,
        sigma: float = 1.0,
        length: float = 150.0,
        tau: tuple[float, float] = (4.0, 192.0),
        **layer: Any,
    ):
        super().__init__(dim, num_heads, **layer)
        check_start("gpa", num_terms, alpha=alpha, sigma=sigma, length=length, tau=tau)
        bank = DecayingPeriodicBank(num_heads, num_terms, alpha=alpha, sigma=sigma, length=length, tau=tau)
        self.kernel = (ExpDot() * bank).to(**self.factory)
