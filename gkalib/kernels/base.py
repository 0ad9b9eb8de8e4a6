"""What a kernel is: a similarity given by its logarithm, with a form or features that make it fast."""

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gkalib.shapes import Key, Lag, Query, Scores, one_number, readable, takes


def over_heads(parameter: float | Tensor) -> float | Tensor:
    """A number or 0-d tensor as it is; one value per head ``[h]`` as ``[h, 1, 1]``, to multiply scores."""
    if isinstance(parameter, Tensor) and parameter.ndim == 1:
        return parameter[:, None, None]
    return parameter


def positive(owner: str, name: str, parameter: float | Tensor, *, least: float = 0.0) -> float | Tensor:
    """Check a positive parameter: a number, a 0-d tensor, or one value per head ``[h]``.

    Values are checked where they are ``readable``.

    Raises:
        ValueError: if it is neither a number nor a tensor, the shape is another, or a value is zero,
            negative, below ``least``, infinite or not a number.
    """
    if isinstance(parameter, Tensor):
        if parameter.ndim > 1:
            shape = " ".join(map(str, parameter.shape))
            raise ValueError(
                f"{owner}: {name} must be a number or one value per head [h], not shape [{shape}]"
            )
        if not parameter.is_floating_point():
            raise ValueError(f"{owner}: {name} must be floating point, not {parameter.dtype}")
        if not readable(parameter):
            return parameter
        values = parameter.tolist() if parameter.ndim else [parameter.item()]
    else:
        parameter = one_number(owner, name, parameter)
        values = [parameter]
    wrong = [value for value in values if not 0 < value < math.inf or value < least]
    if wrong:
        bound = f"at least {least:g}" if 0 < wrong[0] < least else "positive"
        raise ValueError(f"{owner}: {name} must be {bound} and finite, not {wrong[0]}")
    return parameter


def heads_of(parameter: float | Tensor | None) -> int | None:
    """The number of heads that a parameter is given for, or None if it is the same for all."""
    return parameter.shape[0] if isinstance(parameter, Tensor) and parameter.ndim == 1 else None


def heads_of_both(owner: str, first: float | Tensor, second: float | Tensor) -> int | None:
    """The number of heads that two parameters are given for, or None if both are the same for all.

    Raises:
        ValueError: if they are given for different numbers of heads.
    """
    counts = {count for count in map(heads_of, (first, second)) if count is not None}
    if len(counts - {1}) > 1:
        raise ValueError(f"{owner} has parameters for {heads_of(first)} and for {heads_of(second)} heads")
    return max(counts, default=None)


def written(parameter: float | Tensor) -> str:
    """A parameter for a module's print: four digits of each number, or the shape where there are none."""
    if not isinstance(parameter, Tensor):
        return f"{parameter:.4g}"
    if parameter.is_meta:
        return f"[{' '.join(map(str, parameter.shape))}]"
    numbers = parameter.detach().tolist()
    return f"[{', '.join(f'{x:.4g}' for x in numbers)}]" if parameter.ndim else f"{numbers:.4g}"


def _without_lag(function: Callable) -> Callable:
    """A kernel's method of query and key, so that it can be called with a lag as well."""

    @functools.wraps(function)
    def ignoring_lag(self, query, key, lag=None):
        return function(self, query, key)

    return ignoring_lag


def _added(first, second):
    """The sum of two optional functions."""
    if first is None:
        return second
    if second is None:
        return first
    return lambda *arguments: first(*arguments) + second(*arguments)


class Bank(NamedTuple):
    """The parameters of a ``DecayingPeriodicBank``, ``[h M]`` each; one program forms its table from them."""

    alpha: Tensor
    sigma: Tensor
    log_length: Tensor
    log_tau: Tensor


class Form:
    r"""A log-kernel as one matrix product and cheap additions.

    $$\log\kappa(q_i, k_j) = s\, q_i^\top k_j - \tfrac{\nu}{2}\big(\|q_i\|^2 + \|k_j\|^2\big)
    + b(k_j) + t(i - j)$$

    Args:
        scale, norm: s and ν, each a number, a 0-d tensor or one value per head ``[h]``.
        key_bias: b, from ``[b h m d]`` to ``[b h m]``; None is zero.
        lag_table: t, from (n, m) to the values ``[h, n + m − 1]`` at the lags 1 − n … m − 1; None is zero.
        sigma: σ of a Gaussian, given instead of both s = ν = σ⁻².
        formed_of: what ``lag_table`` is formed of, where a program forms it of parameters alone.

    Raises:
        ValueError: if ``sigma`` is given beside ``scale`` or ``norm``.

    Chapter 16 shows what each method makes of a form.
    """

    def __init__(
        self,
        scale: float | Tensor = 0.0,
        norm: float | Tensor = 0.0,
        key_bias: Callable[[Tensor], Tensor] | None = None,
        lag_table: Callable[[int, int], Tensor] | None = None,
        sigma: float | Tensor | None = None,
        formed_of: Bank | None = None,
    ):
        if sigma is not None and (_is_not_zero(scale) or _is_not_zero(norm)):
            raise ValueError("Form: sigma says what scale and norm are, so neither is given beside it")
        self.key_bias = key_bias
        self.lag_table = lag_table
        self.sigma = sigma
        self.formed_of = formed_of
        self._scale, self._norm = scale, norm
        self._precision: float | Tensor | None = None

    @property
    def scale(self) -> float | Tensor:
        """s."""
        return self._scale if self.sigma is None else self._inverse_square(self.sigma)

    @property
    def norm(self) -> float | Tensor:
        """ν."""
        return self._norm if self.sigma is None else self._inverse_square(self.sigma)

    def _inverse_square(self, sigma: float | Tensor) -> float | Tensor:
        """σ⁻², formed by whoever reads it first: the fused operations never do."""
        if self._precision is None:
            self._precision = sigma**-2
        return self._precision

    def __mul__(self, other: "Form") -> "Form":
        table, bias = _added(self.lag_table, other.lag_table), _added(self.key_bias, other.key_bias)
        alone = self if other.lag_table is None else other if self.lag_table is None else None
        formed_of = alone and alone.formed_of
        for content, added in ((self, other), (other, self)):
            if content.sigma is not None and not added.of_pairs:
                return Form(key_bias=bias, lag_table=table, sigma=content.sigma, formed_of=formed_of)
        if self.sigma is not None and other.sigma is not None:  # a Gaussian again
            sigma = (self.scale + other.scale) ** -0.5
            return Form(key_bias=bias, lag_table=table, sigma=sigma, formed_of=formed_of)
        return Form(self.scale + other.scale, self.norm + other.norm, bias, table, formed_of=formed_of)

    @property
    def has_norm(self) -> bool:
        """Whether squared lengths are part of it."""
        return self.sigma is not None or _is_not_zero(self._norm)

    @property
    def of_pairs(self) -> bool:
        """Whether products or squared lengths are part of it."""
        return _is_not_zero(self._scale) or self.has_norm

    def query_term(self, query: Tensor) -> Tensor | None:
        """What is added for each query, −ν|q|²/2 ``[b h n]``; None is nothing."""
        return _half_squares(self.norm, query) if self.has_norm else None

    def key_term(self, key: Tensor, given: Tensor | None = None) -> Tensor | None:
        """What is added for each key, −ν|k|²/2 + b(k) ``[b h m]``; None is nothing.

        Where keys were moved, ``given`` is what they were before: b reads that.
        """
        squares = self.query_term(key)
        if self.key_bias is None:
            return squares
        bias = self.key_bias(key if given is None else given)
        return bias if squares is None else squares + bias


def _is_not_zero(number: float | Tensor) -> bool:
    """Whether a number is not zero; a tensor's values are not looked at."""
    return isinstance(number, Tensor) or number != 0


def _half_squares(norm: float | Tensor, vectors: Tensor) -> Tensor:
    """−ν|x|²/2, ``[b h n]``; ν of a head stands beside its head axis."""
    factor = -0.5 * (norm[:, None] if isinstance(norm, Tensor) and norm.ndim else norm)
    return factor * (vectors * vectors).sum(-1)  # a square takes longer


@dataclass(frozen=True)
class FeatureMap:
    r"""A kernel as a finite inner product, $\kappa(q, k) = \varphi_q(q)^\top \varphi_k(k)$.

    Args:
        query: φ_q, from ``[b h n d]`` to ``[b h n r]``.
        key: φ_k, from ``[b h m d]`` to ``[b h m r]``.
        one_by_one: whether a key's features depend on that key alone, so that keys may come in portions.

    Chapter 11 teaches feature maps.
    """

    query: Callable[[Tensor], Tensor]
    key: Callable[[Tensor], Tensor]
    one_by_one: bool = True


class Kernel(nn.Module, ABC):
    r"""A similarity κ(q, k) ≥ 0, defined by its logarithm.

    $$\kappa(q, k) = \exp(\texttt{log}(q, k)), \qquad \kappa = 0 \text{ is } -\infty$$

    A subclass writes ``log``; if it ignores the lag, it need not name it. One that also gives a ``form`` or
    ``features`` is computed faster, nothing else changes. A tensor assigned to a kernel, such as a σ, becomes
    a buffer that is not saved; it keeps its gradient. ``kernel_a * kernel_b`` is the product (log-kernels
    add), ``kernel_a + kernel_b`` the sum.

    Chapter 3 teaches kernels and what may be done with them.
    """

    signed: bool = False  # True if values may be negative: then there is no logarithm, only `forward`
    of_lag: bool = False  # True if the kernel reads the lag and nothing can be computed without it
    of_content: bool = True  # False if the kernel is a function of the lag alone

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__(**options)
        for name in ("log", "forward"):
            if name in vars(cls) and not takes(vars(cls)[name], 4):
                setattr(cls, name, _without_lag(vars(cls)[name]))

    def __setattr__(self, name: str, value: Any) -> None:
        given = isinstance(value, Tensor) and not isinstance(value, nn.Parameter)
        if given and name not in self._buffers and name not in self._parameters and name not in self.__dict__:
            self.register_buffer(name, value, persistent=False)
        else:
            super().__setattr__(name, value)

    @abstractmethod
    def log(self, query: Query, key: Key, lag: Lag | None = None) -> Scores:
        """log κ of every query with every key; ``lag`` is query position minus key position."""

    def forward(self, query: Query, key: Key, lag: Lag | None = None) -> Scores:
        """κ of every query with every key."""
        return self.log(query, key, lag).exp()

    def form(self, head_dim: int) -> Form | None:
        """The log-kernel of ``head_dim`` numbers as one matrix product and additions, or None."""
        return None

    def features(self) -> FeatureMap | None:
        """The kernel as a finite inner product, or None."""
        return None

    def heads(self) -> int | None:
        """The number of heads that the parameters are given for, or None if any number will do."""
        return None

    def __mul__(self, other: "Kernel") -> "Kernel":
        if not isinstance(other, Kernel):
            return NotImplemented
        return Product(self, other)

    def __add__(self, other: "Kernel") -> "Kernel":
        if not isinstance(other, Kernel):
            return NotImplemented
        return Mixture(self, other)


def owner_of_heads(kernel: Kernel) -> str:
    """The class of a kernel, in a product or a sum that of the part, which has parameters for each head."""
    while isinstance(kernel, _Pair):
        kernel = kernel.first if kernel.first.heads() == kernel.heads() else kernel.second
    return type(kernel).__name__


class _Pair(Kernel, ABC):
    """Two kernels under one operation."""

    def __init__(self, first: Kernel, second: Kernel):
        super().__init__()
        for kernel in (first, second):
            if kernel.signed:
                raise ValueError(
                    f"{type(self).__name__}: {type(kernel).__name__} may be negative and has no logarithm, "
                    "so it cannot be combined with another kernel"
                )
        counts = {first.heads(), second.heads()} - {None, 1}
        if len(counts) > 1:
            raise ValueError(
                f"{type(self).__name__}: {owner_of_heads(first)} has parameters for {first.heads()} heads, "
                f"{owner_of_heads(second)} for {second.heads()}"
            )
        self.first = first
        self.second = second
        self.of_lag = first.of_lag or second.of_lag
        self.of_content = first.of_content or second.of_content

    @property
    def _sides(self) -> Iterable[Any]:
        return self._modules.values()  # by its name a module's module takes longer to find

    def heads(self) -> int | None:
        first, second = (kernel.heads() for kernel in self._sides)
        if first is None or second is None:
            return second if first is None else first
        return max(first, second)


class Product(_Pair):
    r"""The product of two kernels, a kernel again.

    $$\log(\kappa_1 \kappa_2) = \log\kappa_1 + \log\kappa_2$$

    Args:
        first, second: the factors.

    Raises:
        ValueError: if a factor is signed, or the factors have parameters for different numbers of heads.

    Chapter 3 uses it to build kernels for sunspots.
    """

    def log(self, query: Query, key: Key, lag: Lag | None = None) -> Scores:
        return self.first.log(query, key, lag) + self.second.log(query, key, lag)

    def form(self, head_dim: int) -> Form | None:
        first, second = (kernel.form(head_dim) for kernel in self._sides)
        return first * second if first and second else None


class Mixture(_Pair):
    r"""The sum of two kernels, a kernel again.

    $$\log(\kappa_1 + \kappa_2) = \operatorname{logsumexp}(\log\kappa_1, \log\kappa_2)$$

    Args:
        first, second: the terms.

    Raises:
        ValueError: if a term is signed, or the terms have parameters for different numbers of heads.

    Chapter 3 uses it; a sum has no single-product form, so only ``reference`` and ``dense`` compute it.
    """

    def log(self, query: Query, key: Key, lag: Lag | None = None) -> Scores:
        logs = torch.broadcast_tensors(self.first.log(query, key, lag), self.second.log(query, key, lag))
        # In one tensor: Inductor stops with an error where it joins the gradients of two masked distances.
        both = torch.stack(logs)
        # Where all are zero logsumexp has no gradient: give it finite arguments and put the zero back.
        nothing = both.isneginf().all(0)
        return both.masked_fill(nothing, 0.0).logsumexp(0).masked_fill(nothing, -torch.inf)
