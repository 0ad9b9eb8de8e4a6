"""A bank of decaying periodic kernels of the lag, as in Gaussian Process Attention."""

import math

import torch
from torch import Tensor, nn

from gkalib.kernels.base import Form, Kernel
from gkalib.shapes import Key, Lag, Query, Scores


def check_start(
    owner: str, num_terms: int, *, alpha: float, sigma: float, length: float, tau: tuple[float, float]
) -> None:
    """Check what a bank starts from, for the class that its caller named.

    Raises:
        ValueError: as ``DecayingPeriodicBank``.
    """
    if num_terms < 1:
        raise ValueError(f"{owner}: num_terms must be at least 1, not {num_terms}")
    if len(tau) != 2:
        raise ValueError(f"{owner}: tau must be the least and the greatest, two numbers, not {tau}")
    if not all(math.isfinite(number) for number in (alpha, sigma)):
        raise ValueError(f"{owner}: alpha and sigma must be finite, not {alpha} and {sigma}")
    if not all(math.isfinite(number) and number > 0 for number in (length, *tau)):
        raise ValueError(f"{owner}: length and tau must be positive and finite, not {length} and {tau}")


class DecayingPeriodicBank(Kernel):
    r"""The exponential of a sum of decaying periodic kernels of the lag Δ = |i − j|, one bank per head.

    $$\log\kappa = G(\Delta) = \sum_{m=1}^{M} \sigma_m^2 e^{-\Delta/\ell_m}
    \exp\left(-2\alpha_m^2 \sin^2(\Delta/\tau_m)\right)$$

    There is no π in the sine, as in the paper: a term has the period πτ. α, σ, log ℓ and log τ are parameters
    of shape ``[h, M]``, 4M per head. The paper does not say how ℓ and τ are kept positive; their logarithms
    are our choice. G ≥ 0 whatever the parameters, and σ = 0, a zero bank, has no gradient: it stays zero.

    Args:
        num_heads: h, the number of heads.
        num_terms: M, the number of terms per head.
        alpha: α at the start, how sharp the peaks are.
        sigma: σ at the start; G(0) = M σ².
        length: ℓ at the start, the lag of decay, in tokens.
        tau: the least and the greatest τ at the start, in tokens; the terms lie evenly between.

    The defaults are the paper's.

    Raises:
        ValueError: if a count is below 1, ``length`` or ``tau`` is not positive, a number is not finite, or a
            lag is missing in use.

    References:
        Gaussian Process Attention with Kernel Modeling, equations 3 to 6. Chapters 3 and 8 teach it.
    """

    of_lag = True
    of_content = False

    def __init__(
        self,
        num_heads: int,
        num_terms: int = 64,
        *,
        alpha: float = 1.0,
        sigma: float = 1.0,
        length: float = 150.0,
        tau: tuple[float, float] = (4.0, 192.0),
    ):
        super().__init__()
        if num_heads < 1:
            raise ValueError(f"DecayingPeriodicBank: num_heads must be at least 1, not {num_heads}")
        check_start("DecayingPeriodicBank", num_terms, alpha=alpha, sigma=sigma, length=length, tau=tau)
        shape = (num_heads, num_terms)
        self.alpha = nn.Parameter(torch.full(shape, float(alpha)))
        self.sigma = nn.Parameter(torch.full(shape, float(sigma)))
        self.log_length = nn.Parameter(torch.full(shape, float(length)).log())
        self.log_tau = nn.Parameter(torch.linspace(*tau, num_terms).log().repeat(num_heads, 1))

    def log(self, query: Query, key: Key, lag: Lag | None = None) -> Scores:
        if lag is None:
            raise ValueError(
                "DecayingPeriodicBank: a kernel of the lag needs lag, query position minus key position "
                "[n m]; smooth and attention_weights pass it"
            )
        batch, heads, queries, _ = query.shape
        bias = self._bank(lag)
        bias = bias.transpose(0, 1) if lag.ndim == 3 else bias
        return bias.expand(batch, heads, queries, key.shape[-2])

    def lag_table(self, length: int) -> Tensor:
        """G at the lags 0 … length − 1, ``[h, length]``."""
        return self._bank(torch.arange(length, device=self.alpha.device))

    def form(self, head_dim: int) -> Form:
        return Form(0.0, lag_table=self.lag_table)

    def heads(self) -> int:
        return self.alpha.shape[0]

    def _bank(self, lag: Tensor) -> Tensor:
        """G of any tensor of lags, with a head axis put in front."""
        # A lag above 256 is no number of bfloat16, and a phase needs more digits than half precision has.
        wide = torch.promote_types(self.alpha.dtype, torch.float32)
        lag = lag.abs().to(wide)[None, ..., None]

        def per_term(parameter: Tensor) -> Tensor:
            parameter = parameter.to(wide)
            return parameter.reshape(parameter.shape[0], *[1] * (lag.ndim - 2), parameter.shape[1])

        decay = per_term(self.sigma).square() * (-lag / per_term(self.log_length).exp()).exp()
        sine = torch.sin(lag / per_term(self.log_tau).exp())
        return (decay * (-2 * (per_term(self.alpha) * sine).square()).exp()).sum(-1)
