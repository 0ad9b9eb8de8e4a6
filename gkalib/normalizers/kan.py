"""What Kolmogorov–Arnold networks stack: functions of one number with coefficients to learn, in tables."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, silu

from gkalib.shapes import check_counts, check_known


class Basis(ABC):
    """A family of functions φ(x; c) of a score x, given by C coefficients c.

    ``coefficients`` is C; ``linear`` are those in which φ is linear; ``macs`` counts the multiplications of
    one φ(x; c), its argument's included, as KArAt's table of GFLOPs does.
    """

    name: str
    coefficients: int
    macs: int
    linear: slice = slice(None)

    @abstractmethod
    def __call__(self, x: Tensor, coefficients: Tensor, scale: Tensor | None) -> Tensor:
        """Σ_q s_pq φ(x_q; c_pq) ``[b h n p]`` of x ``[b h n q]``, c ``[h p q C]`` and s ``[h p q]``."""

    @abstractmethod
    def mean_square(self) -> float:
        """The mean of φ² over standard normal scores and standard normal coefficients."""

    def start(self, coefficients: Tensor) -> None:
        """Write the paper's starting point into coefficients ``[… C]``: standard normal draws."""
        coefficients.normal_()


class Expansion(Basis, ABC):
    """A basis in the strict sense: φ is a sum of fixed functions, whose values all its units share."""

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """The fixed functions at x ``[…]``, as ``[… C]``."""

    def __call__(self, x: Tensor, coefficients: Tensor, scale: Tensor | None) -> Tensor:
        table = coefficients if scale is None else scale[..., None] * coefficients
        return self.features(x).flatten(-2) @ table.flatten(-2).mT

    def mean_square(self) -> float:
        return self.features(_standard_scores()).square().sum(-1).mean().item()


@final
class Fourier(Expansion):
    r"""A Fourier series without its constant, in the score as it is: the period is 2π.

    $$\varphi(x) = \sum_{m=1}^{G} a_m \cos(m x) + b_m \sin(m x)$$

    Args:
        grid: G, the number of harmonics.

    Raises:
        ValueError: if ``grid`` is below 1.

    References:
        KArAt, 2025, equation 5. Chapter 9 teaches it.
    """

    name = "fourier"

    def __init__(self, grid: int = 3):
        check_counts("Fourier", grid=grid)
        self.grid, self.coefficients, self.macs = grid, 2 * grid, 3 * grid

    def features(self, x: Tensor) -> Tensor:
        angle = x[..., None] * torch.arange(1, self.grid + 1, device=x.device, dtype=x.dtype)
        return torch.cat([angle.cos(), angle.sin()], dim=-1)

    def __repr__(self) -> str:
        return f"Fourier({self.grid})"


@final
class BSpline(Expansion):
    r"""B-splines of degree k on G equally spaced grid points, continued by k knots at either end.

    $$\varphi(x) = \sum_{m=1}^{G+k-1} c_m B_{m,k}(x)$$

    It is zero k steps beyond the ends of the grid.

    Args:
        grid: G ≥ 2 points from −reach to reach.
        degree: k ≥ 1.
        reach: the largest grid point.

    Raises:
        ValueError: if there is no interval, the degree is below 1 or ``reach`` is not positive.

    References:
        Liu et al., KAN, 2025; KArAt, 2025, section 2. Chapter 9 teaches it.
    """

    name = "b_spline"

    def __init__(self, grid: int = 10, *, degree: int = 3, reach: float = 4.0):
        if grid < 2 or degree < 1:
            raise ValueError(f"BSpline: grid must be at least 2 and degree 1, not {grid} and {degree}")
        if not (math.isfinite(reach) and reach > 0):
            raise ValueError(f"BSpline: reach must be positive and finite, not {reach}")
        self.grid, self.degree, self.reach = grid, degree, reach
        self.coefficients = self.macs = grid + degree - 1

    def features(self, x: Tensor) -> Tensor:
        k, intervals = self.degree, self.grid + 2 * self.degree - 1
        first = -(self.grid - 1) / 2 - k
        steps = (x * (self.grid - 1) / (2 * self.reach)).clamp(first, first + intervals)
        knot = (steps - first).floor().nan_to_num(k)  # the last one that is not beyond x
        t = steps - (first + knot)
        # At x only k + 1 functions are not zero: those that begin there, and at the k knots before.
        values = [torch.ones_like(t)]
        for d in range(1, k + 1):
            pairs = zip([0, *values], [*values, 0], strict=True)
            values = [((t + d - c) * one + (c + 1 - t) * other) / d for c, (one, other) in enumerate(pairs)]
        index = knot.long()[..., None] + torch.arange(k + 1, device=x.device)
        padded = x.new_zeros(*x.shape, intervals + k + 1).scatter_(-1, index, torch.stack(values, dim=-1))
        return padded[..., k : k + self.coefficients]

    def __repr__(self) -> str:
        return f"BSpline({self.grid}, degree={self.degree}, reach={self.reach})"


@final
class Rational(Basis):
    r"""A safe Padé unit: a quotient of polynomials whose denominator is at least one.

    $$\varphi(x) = \frac{a_0 + a_1 x + \dots + a_5 x^5}{1 + |b_1 x + \dots + b_4 x^4|}$$

    References:
        Molina et al., Padé activation units, 2020; KArAt, 2025, table 6. Chapter 9 teaches it.
    """

    name = "rational"
    coefficients, macs, linear = 10, 9, slice(6)

    def __call__(self, x: Tensor, coefficients: Tensor, scale: Tensor | None) -> Tensor:
        return _sum(self._quotient(x[..., None, :], coefficients[:, None].unbind(-1)), scale)

    def mean_square(self) -> float:
        x = _standard_scores()
        powers = x[:, None] ** (2 * torch.arange(6, device="cpu"))
        numerator, spread = powers.sum(-1), powers[:, 1:5].sum(-1).sqrt()
        return (numerator[:, None] / (1 + (spread[:, None] * x).abs()) ** 2).mean().item()

    def _quotient(self, x: Tensor, coefficients: tuple[Tensor, ...]) -> Tensor:
        numerator = coefficients[5]
        for a in reversed(coefficients[:5]):
            numerator = numerator * x + a
        below = coefficients[9]
        for b in reversed(coefficients[6:9]):
            below = below * x + b
        return numerator / (1 + (below * x).abs())

    def __repr__(self) -> str:
        return "Rational()"


def _mexican_hat(x: Tensor) -> Tensor:
    return 2 / (math.pi**0.25 * math.sqrt(3)) * (x.square() - 1) * (-x.square() / 2).exp()


def _morlet(x: Tensor) -> Tensor:
    return (5 * x).cos() * (-x.square() / 2).exp()


def _derivative_of_gaussian(x: Tensor) -> Tensor:
    return x * (-x.square() / 2).exp()


def _step(t: Tensor) -> Tensor:
    """The smooth step of Meyer's construction from 0 at 0 to 1 at 1."""
    t = t.clamp(0, 1)
    return t**4 * (35 - 84 * t + 70 * t**2 - 20 * t**3)


def _meyer(x: Tensor) -> Tensor:
    return (math.pi * x.abs()).sin() * (math.pi / 2 * _step(2 * _step(x.abs()) - 1)).cos() * (x.abs() < 1)


def _shannon(x: Tensor) -> Tensor:
    window = torch.hamming_window(x.shape[-1], periodic=False, device=x.device, dtype=x.dtype)
    return torch.sinc(x / math.pi) * window


_WAVELETS: dict[str, Callable[[Tensor], Tensor]] = {
    "mexican_hat": _mexican_hat,
    "morlet": _morlet,
    "dog": _derivative_of_gaussian,
    "meyer": _meyer,
    "shannon": _shannon,
}


@final
class Wavelet(Basis):
    r"""One wavelet per unit, with a weight, a place and a width of its own.

    $$\varphi(x) = w\, \psi\!\left(\frac{x - \tau}{s}\right), \qquad \tau = 0,\; s = 1 \text{ at the start}$$

    ψ(x) is $2(x^2-1)e^{-x^2/2}/(\pi^{1/4}\sqrt 3)$ (``mexican_hat``), $\cos(5x)\,e^{-x^2/2}$ (``morlet``),
    $x e^{-x^2/2}$ (``dog``), $\sin(\pi|x|)\,m(\nu(|x|))$ on $|x| < 1$ (``meyer``; what ν is below zero the
    paper does not say) or $\sin(x)/x$ times a Hamming window (``shannon``; the window runs over the inputs of
    the row, as in the public code of Wav-KAN, since the paper does not say what it runs over).

    Args:
        name: which ψ.

    Raises:
        ValueError: if the name is unknown.

    References:
        Bozorgasl and Chen, Wav-KAN, 2024; KArAt, 2025, table 6. Chapter 9 teaches it.
    """

    coefficients, macs, linear = 3, 3, slice(1)

    def __init__(self, name: str):
        check_known("Wavelet", "wavelet", name, _WAVELETS)
        self.name, self._curve = name, _WAVELETS[name]

    def start(self, coefficients: Tensor) -> None:
        coefficients[..., 0].normal_()
        coefficients[..., 1].zero_()
        coefficients[..., 2].fill_(1)

    def __call__(self, x: Tensor, coefficients: Tensor, scale: Tensor | None) -> Tensor:
        weight, place, width = coefficients[:, None].unbind(-1)
        return _sum(weight * self._curve((x[..., None, :] - place) / width), scale)

    def mean_square(self) -> float:
        # A second axis, of inputs, for the one wavelet with a window over them.
        return self._curve(_standard_scores()[:, None].expand(-1, 64)).square().mean().item()

    def __repr__(self) -> str:
        return f"Wavelet({self.name!r})"


def _sum(units: Tensor, scale: Tensor | None) -> Tensor:
    """The units' values ``[b h n p q]`` summed over the row, each times its scale."""
    return units.sum(-1) if scale is None else torch.einsum("bhnpq,hpq->bhnp", units, scale)


def _standard_scores() -> Tensor:
    """A thousand evenly spread quantiles of the standard normal distribution."""
    return torch.special.ndtri((torch.arange(1000, dtype=torch.float64, device="cpu") + 0.5) / 1000)


_WITH_GRID: dict[str, Callable[..., Basis]] = {"fourier": Fourier, "b_spline": BSpline}
BASES = (*_WITH_GRID, "rational", *_WAVELETS)


def basis(name: str, grid: int | None = None) -> Basis:
    """A basis by its name.

    Args:
        name: one of ``BASES``.
        grid: the number of harmonics or of grid points; None is the default.

    Raises:
        ValueError: if the name is unknown, or a grid is given to a basis that has none.
    """
    if name not in BASES:
        raise ValueError(f"no basis named {name!r}. Known: {', '.join(BASES)}")
    if name in _WITH_GRID:
        return _WITH_GRID[name](**({} if grid is None else {"grid": grid}))
    if grid is not None:
        raise ValueError(f"the basis {name!r} has no grid, so grid={grid} means nothing")
    return Rational() if name == "rational" else Wavelet(name)


BASE_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor] | None] = {
    "zero": None,
    "identity": lambda x: x,
    "silu": silu,
    "gelu": gelu,
}


@final
class Units(nn.Module):
    r"""A p × q table of learned functions, each applied to its input, summed over the inputs.

    $$y_p = \sum_q s^{b}_{pq}\, b(x_q) + s_{pq}\, \varphi(x_q; c_{pq})$$

    Args:
        heads: h, one table each.
        inputs: the number of x_q.
        outputs: the number of y_p.
        basis: φ.
        base: b, ``"zero"``, ``"identity"``, ``"silu"`` or ``"gelu"``.
        unit_scales: whether $s^b$ and $s$ are learned; else they are one. They are two numbers per unit also
            where b is zero and $s^b$ does nothing.
        init: ``"damped"``, at which standard normal inputs give outputs of variance ``variance``, or
            ``"paper"``: coefficients N(0, 1), scales one.
        variance: what ``"damped"`` aims at.

    Raises:
        ValueError: if ``base`` or ``init`` is unknown.

    References:
        Liu et al., KAN, 2025; KArAt, 2025, equation 2. Chapter 9 teaches it.
    """

    def __init__(
        self,
        heads: int,
        inputs: int,
        outputs: int,
        basis: Basis,
        *,
        base: str = "zero",
        unit_scales: bool = True,
        init: str = "damped",
        variance: float = 1.0,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        if base not in BASE_ACTIVATIONS:
            raise ValueError(f"no base activation {base!r}. Known: {', '.join(BASE_ACTIVATIONS)}")
        if init not in ("damped", "paper"):
            raise ValueError(f"init must be 'damped' or 'paper', not {init!r}")
        self.basis, self.base = basis, base
        shape, factory = (heads, outputs, inputs), {"device": device, "dtype": dtype}
        self.coefficients = nn.Parameter(torch.empty(*shape, basis.coefficients, **factory))
        # Where b is zero they have no gradient, and processes that train together must know.
        ones = torch.ones(shape, **factory)
        self.base_scale = nn.Parameter(ones, requires_grad=base != "zero") if unit_scales else None
        self.basis_scale = nn.Parameter(torch.ones(shape, **factory)) if unit_scales else None
        with torch.no_grad():
            basis.start(self.coefficients)
            if init == "damped":
                self.coefficients[..., basis.linear] *= math.sqrt(variance / (inputs * basis.mean_square()))
                if self.base_scale is not None:
                    self.base_scale.normal_(std=math.sqrt(variance / inputs))

    @property
    def macs(self) -> int:
        """Multiplications for one row of one head, every unit evaluating its own function."""
        _, outputs, inputs, _ = self.coefficients.shape
        return outputs * inputs * self.basis.macs

    def forward(self, x: Tensor) -> Tensor:
        """y ``[b h n p]`` of x ``[b h n q]``."""
        coefficients = self.coefficients.to(x.dtype)
        scale = None if self.basis_scale is None else self.basis_scale.to(x.dtype)
        out = self.basis(x, coefficients, scale)
        base = BASE_ACTIVATIONS[self.base]
        if base is None:
            return out
        if self.base_scale is None:
            return out + base(x).sum(-1, keepdim=True)
        return out + base(x) @ self.base_scale.to(x.dtype).mT
