"""Kernels of the lag: query position minus key position, whatever the content."""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from gkalib.kernels.base import Bank, Form, Kernel, positive
from gkalib.kernels.lags import of_lags
from gkalib.shapes import Key, Lag, Query, Scores, check_counts, check_counts_or_none, one_number


class _InBuckets(torch.autograd.Function):
    """b at the bucket of each lag, ``[h l]``; the gradient is one product, where an index would be sorted."""

    @staticmethod
    def forward(ctx, bias, bucket, members):
        ctx.members = members
        return bias.index_select(1, bucket)

    @staticmethod
    def backward(ctx, grad):
        return grad @ ctx.members().T, None, None


class LagKernel(Kernel, ABC):
    r"""A kernel of the signed lag; a subclass gives its logarithm t, one function a head.

    $$\kappa(q_i, k_j) = e^{t(i - j)}$$

    Args:
        num_heads: h, the number of heads; None where any number will do.

    Raises:
        ValueError: if there are no heads.
    """

    of_lag = True
    of_content = False

    def __init__(self, num_heads: int | None = None):
        super().__init__()
        check_counts_or_none(type(self).__name__, num_heads=num_heads)
        self.num_heads = num_heads

    @abstractmethod
    def at(self, lag: Tensor) -> Tensor:
        """t at the lags ``[…]`` for every head, ``[h …]``."""

    def log(self, query: Query, key: Key, lag: Lag | None = None) -> Scores:
        if lag is None:
            raise ValueError(
                f"{type(self).__name__}: a kernel of the lag needs lag, query position minus key position "
                "[n m]; smooth and attention_weights pass it"
            )
        batch, heads, queries, _ = query.shape
        scores = self.at(lag if lag.is_floating_point() else lag.long())
        scores = scores.transpose(0, 1) if lag.ndim == 3 else scores
        return scores.expand(batch, heads, queries, key.shape[-2])

    def form(self, head_dim: int) -> Form:
        return Form(lag_table=self.table)

    def table(self, queries: int, keys: int) -> Tensor:
        """t at the lags 1 − n … m − 1, ``[h, n + m − 1]``."""
        # on the device of the kernel's own numbers, where it has any
        own = next(self.parameters(), next(self.buffers(), None))
        return self.at(of_lags("lag", lambda lag: lag, queries, keys, own))

    def heads(self) -> int | None:
        return self.num_heads

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}"


class LagTable(LagKernel):
    r"""A kernel of the signed lag, free at every lag.

    $$\kappa(q_i, k_j) = e^{b_{i - j}}, \qquad -L < i - j < L$$

    b is a parameter ``[h, 2L − 1]``, zero at the start: at index 0 the lag −(L − 1), a key far ahead of its
    query, at index L − 1 the lag 0. A lag beyond the table counts as the last one in it. The table has both
    signs, as the paper's b_{j−i} does, so the kernel need not be symmetric.

    Args:
        num_heads: h, the number of heads.
        length: L, the number of tokens that the table is made for.

    Raises:
        ValueError: if a count is below 1, or a lag is missing or not a whole number in use.

    References:
        Luo et al., Stable, Fast and Accurate: Kernelized Attention with Relative Positional Encoding, 2021.
        Chapter 13 teaches it.
    """

    def __init__(self, num_heads: int, length: int):
        super().__init__(num_heads)
        check_counts("LagTable", length=length)
        self.length = length
        self.bias = nn.Parameter(torch.zeros(num_heads, 2 * length - 1))

    def at(self, lag: Tensor) -> Tensor:
        _check_whole("LagTable", lag)
        return self.bias[:, (lag + self.length - 1).clamp(0, 2 * self.length - 2)]

    def table(self, queries: int, keys: int) -> Tensor:
        if queries == keys == self.length:
            return self.bias
        if max(queries, keys) <= self.length:
            return self.bias[:, self.length - queries : self.length + keys - 1]
        return super().table(queries, keys)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, length={self.length}"


class T5Buckets(LagKernel):
    r"""T5's relative positions: one learned number for each bucket of lags.

    $$\kappa(q_i, k_j) = e^{b_{B(i - j)}}, \qquad
    B(\Delta) = \begin{cases} \Delta & \Delta < E \\
    E + \big\lfloor \tfrac{\log(\Delta / E)}{\log(R / E)}\, E \big\rfloor & \text{else, at most } 2E - 1
    \end{cases}$$

    for Δ ≥ 0. Half the buckets are for keys behind the query, half for keys ahead of it, each half with 2E of
    them. Where no query sees ahead, all 2E serve the keys behind, and keys ahead share B(0). b is a parameter
    ``[h, buckets]``, zero at the start. T5 has the scale 1: its attention is ``ExpDot(1.0) * T5Buckets(h)``.

    Args:
        num_heads: h, the number of heads.
        num_buckets: of both halves together.
        max_distance: R, the lag from which on all share the last bucket.
        bidirectional: whether keys ahead have buckets of their own.

    Raises:
        ValueError: if there are no heads, too few buckets or R is not above E; or a lag is missing or not a
            whole number in use.

    References:
        Raffel et al., Exploring the limits of transfer learning with T5, 2020, section 2.1.
    """

    def __init__(
        self, num_heads: int, *, num_buckets: int = 32, max_distance: int = 128, bidirectional: bool = True
    ):
        super().__init__(num_heads)
        self.behind = num_buckets // 2 if bidirectional else num_buckets
        self.exact = self.behind // 2
        if self.exact < 1 or max_distance <= self.exact:
            raise ValueError(
                "T5Buckets: num_buckets must be at least 4 (2 in one direction) and max_distance above "
                f"{max(self.exact, 1)}, not {num_buckets} and {max_distance}"
            )
        self.num_buckets, self.max_distance = num_buckets, max_distance
        self.bidirectional = bidirectional
        self.bias = nn.Parameter(torch.zeros(num_heads, num_buckets))

    def bucket(self, lag: Tensor) -> Tensor:
        """The bucket of each lag."""
        _check_whole("T5Buckets", lag)
        distance = lag.abs() if self.bidirectional else lag.clamp(min=0)
        # In float32, as T5's own code has it: at the edge of a bucket another precision may round elsewhere.
        far = (distance.clamp(min=1).float() / self.exact).log() / math.log(self.max_distance / self.exact)
        far = self.exact + (far * (self.behind - self.exact)).long()
        bucket = torch.where(distance < self.exact, distance, far.clamp(max=self.behind - 1))
        return bucket + self.behind * (lag < 0) if self.bidirectional else bucket

    def at(self, lag: Tensor) -> Tensor:
        return self.bias[:, self.bucket(lag)]

    def table(self, queries: int, keys: int) -> Tensor:
        if torch.compiler.is_compiling():
            return super().table(queries, keys)
        kind = self.num_buckets, self.max_distance, self.bidirectional

        def members() -> Tensor:
            """1 where a lag is in a bucket, ``[buckets l]``."""

            def function(lag: Tensor) -> Tensor:
                every = torch.arange(self.num_buckets, device=lag.device)[:, None]
                return (every == self.bucket(lag)).to(self.bias.dtype)

            return of_lags((*kind, self.bias.dtype), function, queries, keys, self.bias)

        bucket = of_lags(kind, self.bucket, queries, keys, self.bias)
        return _InBuckets.apply(self.bias, bucket, members)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, num_buckets={self.num_buckets}, max_distance={self.max_distance}"


class ALiBi(LagKernel):
    r"""Attention with linear biases: a score falls with the lag, at one rate a head, none of them learned.

    $$\kappa(q_i, k_j) = e^{-\mu_h |i - j|}, \qquad \mu_h = 2^{-8 h / H}, \quad h = 1, \dots, H$$

    Where H is no power of two, the rates are those of the power P below it, and between them every other one
    of those of 2P. The paper has causal attention only, so the sign of the lag is our choice.

    Args:
        num_heads: H, the number of heads.

    Raises:
        ValueError: if there are no heads, or a lag is missing in use.

    References:
        Press et al., Train short, test long, 2022, section 3.
    """

    slopes: Tensor

    def __init__(self, num_heads: int):
        super().__init__(num_heads)
        power = 2 ** int(math.log2(num_heads))
        rates = [2 ** (-8 * (h + 1) / power) for h in range(power)]
        rates += [2 ** (-4 * (h + 1) / power) for h in range(0, 2 * power, 2)]
        self.slopes = torch.tensor(rates[:num_heads])

    def at(self, lag: Tensor) -> Tensor:
        return -self.slopes.reshape(-1, *[1] * lag.ndim) * lag.abs()

    def table(self, queries: int, keys: int) -> Tensor:
        falling = of_lags("falling", lambda lag: -lag.abs(), queries, keys, self.slopes)
        return self.slopes[:, None] * falling


class Kerple(LagKernel):
    r"""KERPLE's logarithmic kernel: similarity falls as a power of the lag, learned for each head.

    $$\kappa(q_i, k_j) = (1 + r_2 |i - j|)^{-r_1}, \qquad r_1, r_2 > 0$$

    The parameters are log r₁ and log r₂, ``[h]`` each.

    Args:
        num_heads: h, the number of heads.
        power: r₁ at the start.
        rate: r₂ at the start.

    Raises:
        ValueError: if there are no heads, or ``power`` or ``rate`` is not positive and finite; or a lag is
            missing in use.

    References:
        Chi et al., KERPLE: Kernelized relative positional embedding, 2022, equation 5.
    """

    def __init__(self, num_heads: int, *, power: float = 1.0, rate: float = 1.0):
        super().__init__(num_heads)
        for name, value in (("power", power), ("rate", rate)):
            positive("Kerple", name, one_number("Kerple", name, value))
        self.log_power = nn.Parameter(torch.full((num_heads,), float(power)).log())
        self.log_rate = nn.Parameter(torch.full((num_heads,), float(rate)).log())

    def at(self, lag: Tensor) -> Tensor:
        power, rate = (log.exp().reshape(-1, *[1] * lag.ndim) for log in (self.log_power, self.log_rate))
        return -power * (rate * lag.abs()).log1p()


def _check_whole(owner: str, lag: Tensor) -> None:
    if lag.is_floating_point():
        raise ValueError(f"{owner}: positions must be whole numbers, so that lags are, not {lag.dtype}")


def check_start(
    owner: str, num_terms: int, *, alpha: float, sigma: float, length: float, tau: tuple[float, float]
) -> None:
    """Check what a bank starts from, for the class that its caller named.

    Raises:
        ValueError: as ``DecayingPeriodicBank``.
    """
    check_counts(owner, num_terms=num_terms)
    if len(tau) != 2:
        raise ValueError(f"{owner}: tau must be the least and the greatest, two numbers, not {tau}")
    for name, number in (("alpha", alpha), ("sigma", sigma), ("length", length)):
        one_number(owner, name, number)
    if not all(math.isfinite(number) for number in (alpha, sigma)):
        raise ValueError(f"{owner}: alpha and sigma must be finite, not {alpha} and {sigma}")
    if not all(math.isfinite(number) and number > 0 for number in (length, *tau)):
        raise ValueError(f"{owner}: length and tau must be positive and finite, not {length} and {tau}")


class DecayingPeriodicBank(LagKernel):
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
        super().__init__(num_heads)
        check_start("DecayingPeriodicBank", num_terms, alpha=alpha, sigma=sigma, length=length, tau=tau)
        shape = (num_heads, num_terms)
        self.alpha = nn.Parameter(torch.full(shape, float(alpha)))
        self.sigma = nn.Parameter(torch.full(shape, float(sigma)))
        self.log_length = nn.Parameter(torch.full(shape, float(length)).log())
        self.log_tau = nn.Parameter(torch.linspace(*tau, num_terms).log().repeat(num_heads, 1))

    def bank(self) -> Bank:
        """The parameters."""
        return Bank(self.alpha, self.sigma, self.log_length, self.log_tau)

    def form(self, head_dim: int) -> Form:
        # An object may have been given another table in the place of its parameters'.
        return Form(lag_table=self.table, formed_of=None if "lag_table" in vars(self) else self.bank())

    def lag_table(self, length: int) -> Tensor:
        """G at the lags 0 … length − 1, ``[h, length]``."""
        return self.at(torch.arange(length, device=self.alpha.device))

    def table(self, queries: int, keys: int) -> Tensor:
        # G does not see the sign, so that each lag is computed once.
        table = self.lag_table(max(queries, keys))
        return torch.cat([table[:, 1:queries].flip(-1), table[:, :keys]], dim=-1)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, num_terms={self.alpha.shape[1]}"

    def at(self, lag: Tensor) -> Tensor:
        # A lag above 256 is no number of bfloat16, and a phase needs more digits than half precision has.
        wide = torch.promote_types(self.alpha.dtype, torch.float32)
        lag = lag.abs().to(wide)[None, ..., None]

        def per_term(parameter: Tensor) -> Tensor:
            parameter = parameter.to(wide)
            return parameter.reshape(parameter.shape[0], *[1] * (lag.ndim - 2), parameter.shape[1])

        decay = per_term(self.sigma).square() * (-lag / per_term(self.log_length).exp()).exp()
        sine = torch.sin(lag / per_term(self.log_tau).exp())
        return (decay * (-2 * (per_term(self.alpha) * sine).square()).exp()).sum(-1)
