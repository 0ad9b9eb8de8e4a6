"""Kernels of the Euclidean distance between query and key, some of them zero beyond one bandwidth."""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from gkalib.kernels.base import Form, Kernel, heads_of, heads_of_both, over_heads, positive, written
from gkalib.shapes import Key, Query, Scores

LEAST = 1e-18  # σ⁻² of a smaller one is no number of float32


def distance(query: Query, key: Key) -> Scores:
    r"""The Euclidean distances ‖q_i − k_j‖, exact at zero and with gradient zero there.

    Half-precision inputs are measured in float32. Differences are taken before they are squared: the
    expansion ‖q‖² + ‖k‖² − 2q·k is faster and loses all digits where q and k are close.
    """
    if query.dtype in (torch.float16, torch.bfloat16):
        query, key = query.float(), key.float()
    return torch.cdist(query, key, compute_mode="donot_use_mm_for_euclid_dist")


class Stationary(Kernel, ABC):
    """A kernel of u = ‖q − k‖ / σ; a subclass gives log κ as a function of u.

    Args:
        sigma: σ, the bandwidth, in the units of q: a positive number, 0-d tensor or one value per head
            ``[h]``. Gradients flow through a tensor given.
        learn: whether log σ is a parameter that starts there, ``log_sigma``, instead.

    Raises:
        ValueError: if ``sigma`` is below 10⁻¹⁸ or not finite, or of another shape.
    """

    def __init__(self, sigma: float | Tensor, *, learn: bool = False):
        super().__init__()
        sigma = positive(type(self).__name__, "sigma", sigma, least=LEAST)
        self.log_sigma = nn.Parameter(_log(sigma)) if learn else None
        self._sigma = sigma if self.log_sigma is None else None

    @property
    def sigma(self) -> float | Tensor:
        """σ, of the parameter where it is learned."""
        log_sigma = self.log_sigma
        if log_sigma is not None:
            return log_sigma.exp()
        sigma = self._sigma
        assert sigma is not None  # one of the two is
        return sigma

    @abstractmethod
    def profile(self, u: Tensor) -> Tensor:
        """log κ at the distances u ≥ 0, measured in bandwidths."""

    def log(self, query: Query, key: Key) -> Scores:
        return self.profile(distance(query, key) / over_heads(self.sigma))

    def heads(self) -> int | None:
        log_sigma = self.log_sigma
        return heads_of(self._sigma if log_sigma is None else log_sigma)

    def extra_repr(self) -> str:
        return f"sigma={written(self.sigma)}" + (", learn=True" if self.log_sigma is not None else "")


def _log(sigma: float | Tensor) -> Tensor:
    """log σ in σ's own type, rounded once."""
    if isinstance(sigma, Tensor):
        return sigma.detach().double().log().to(sigma.dtype)
    return torch.tensor(math.log(sigma))


class Gaussian(Stationary):
    r"""The Gaussian kernel, also called squared exponential or radial basis function.

    $$\kappa(q, k) = \exp\left(-\frac{\|q - k\|^2}{2\sigma^2}\right)$$

    Args:
        sigma, learn: as for ``Stationary``.

    References:
        GKA equation 3, with γ = 1/(2σ²) the RBF paper's; scikit-learn's ``RBF``. Chapters 1 and 7 teach it.
    """

    def profile(self, u: Tensor) -> Tensor:
        return -0.5 * u.square()

    def form(self, head_dim: int) -> Form:
        return Form(sigma=self.sigma)


class Laplace(Stationary):
    r"""The Laplace kernel, with a kink at zero.

    $$\kappa(q, k) = \exp(-\|q - k\| / \sigma)$$

    Args:
        sigma, learn: as for ``Stationary``.

    References:
        Rasmussen and Williams, Gaussian processes for machine learning, 2006, section 4.2. Chapter 3 teaches
        it.
    """

    def profile(self, u: Tensor) -> Tensor:
        return -u


class Matern(Stationary):
    r"""The Matérn kernel of half-integer smoothness ν.

    $$\kappa = e^{-u},\; (1 + \sqrt3 u)e^{-\sqrt3 u},\; (1 + \sqrt5 u + \tfrac53 u^2)e^{-\sqrt5 u}
    \quad\text{for } \nu = \tfrac12, \tfrac32, \tfrac52, \qquad u = \|q - k\|/\sigma$$

    Args:
        sigma, learn: as for ``Stationary``.
        nu: ν, one of 0.5, 1.5, 2.5.

    Raises:
        ValueError: if ``sigma`` is not positive and finite or of another shape, or ``nu`` is another number.

    References:
        Rasmussen and Williams, 2006, equation 4.17; scikit-learn's ``Matern``. Chapter 3 teaches it.
    """

    def __init__(self, sigma: float | Tensor, *, nu: float = 1.5, learn: bool = False):
        super().__init__(sigma, learn=learn)
        if heads_of(nu) is not None or nu not in (0.5, 1.5, 2.5):
            raise ValueError(f"Matern: nu must be 0.5, 1.5 or 2.5, not {nu}")
        self.nu = nu

    def profile(self, u: Tensor) -> Tensor:
        scaled = math.sqrt(2 * self.nu) * u
        if self.nu == 0.5:
            return -scaled
        if self.nu == 1.5:
            return scaled.log1p() - scaled
        return (scaled + scaled.square() / 3).log1p() - scaled


class RationalQuadratic(Stationary):
    r"""The rational quadratic kernel, a mixture of Gaussians of all bandwidths.

    $$\kappa(q, k) = \left(1 + \frac{\|q - k\|^2}{2\alpha\sigma^2}\right)^{-\alpha}$$

    Args:
        sigma, learn: as for ``Stationary``.
        alpha: α > 0, how alike the mixed bandwidths are; the Gaussian as α → ∞. Like σ a number, a 0-d
            tensor or one value per head.

    Raises:
        ValueError: if ``sigma`` or ``alpha`` is not positive and finite, or of another shape.

    References:
        Rasmussen and Williams, 2006, equation 4.19; scikit-learn's ``RationalQuadratic``. Chapter 3 teaches
        it.
    """

    def __init__(self, sigma: float | Tensor, *, alpha: float | Tensor = 1.0, learn: bool = False):
        super().__init__(sigma, learn=learn)
        self.alpha = positive("RationalQuadratic", "alpha", alpha)
        self.heads()  # refuses what does not fit

    def profile(self, u: Tensor) -> Tensor:
        alpha = over_heads(self.alpha)
        return -alpha * (u.square() / (2 * alpha)).log1p()

    def heads(self) -> int | None:
        return heads_of_both("RationalQuadratic", self.sigma, self.alpha)


class Periodic(Stationary):
    r"""The periodic kernel of the distance; positive semi-definite for one-dimensional inputs.

    $$\kappa(q, k) = \exp\left(-\frac{2 \sin^2(\pi \|q - k\| / p)}{\sigma^2}\right)$$

    Args:
        sigma, learn: as for ``Stationary``; σ is the bandwidth within a period and has no unit.
        period: p, in the units of q; like σ a number, a 0-d tensor or one value per head.

    Raises:
        ValueError: if ``sigma`` or ``period`` is not positive and finite, or of another shape.

    References:
        MacKay, Introduction to Gaussian processes, 1998; scikit-learn's ``ExpSineSquared``. Chapter 3 teaches
        it.
    """

    def __init__(self, sigma: float | Tensor, *, period: float | Tensor = 1.0, learn: bool = False):
        super().__init__(sigma, learn=learn)
        self.period = positive("Periodic", "period", period)
        self.heads()  # refuses what does not fit

    def profile(self, u: Tensor) -> Tensor:
        sigma = over_heads(self.sigma)
        return -2 * (torch.sin(math.pi / over_heads(self.period) * sigma * u) / sigma).square()

    def heads(self) -> int | None:
        return heads_of_both("Periodic", self.sigma, self.period)


class _Compact(Stationary, ABC):
    """A kernel that is zero for ‖q − k‖ ≥ σ; a subclass gives log κ inside."""

    @abstractmethod
    def inside(self, u: Tensor) -> Tensor:
        """log κ at the distances 0 ≤ u < 1, measured in bandwidths."""

    def profile(self, u: Tensor) -> Tensor:
        outside = u >= 1
        # Outside, the logarithm sees a harmless zero, so that its gradient there is zero and not 0/0.
        return self.inside(u.masked_fill(outside, 0.0)).masked_fill(outside, -torch.inf)


class Epanechnikov(_Compact):
    r"""The Epanechnikov kernel, of least mean squared error among kernels of one variance.

    $$\kappa(q, k) = \max(0, 1 - \|q - k\|^2/\sigma^2)$$

    Args:
        sigma, learn: as for ``Stationary``; σ is the half-width.

    References:
        Epanechnikov, Theory of Probability and its Applications 14, 1969. Chapter 1 teaches it.
    """

    def inside(self, u: Tensor) -> Tensor:
        return (-u.square()).log1p()


class Boxcar(_Compact):
    r"""The boxcar kernel: a plain average of what is nearer than σ.

    $$\kappa(q, k) = 1 \text{ where } \|q - k\| < \sigma, \text{ else } 0$$

    Args:
        sigma, learn: as for ``Stationary``; σ is the half-width.

    References:
        Rosenblatt, Annals of Mathematical Statistics 27, 1956. Chapter 1 teaches it.
    """

    def inside(self, u: Tensor) -> Tensor:
        return 0 * u


class Tricube(_Compact):
    r"""The tricube kernel of locally weighted regression.

    $$\kappa(q, k) = \max(0, 1 - \|q - k\|^3/\sigma^3)^3$$

    Args:
        sigma, learn: as for ``Stationary``; σ is the half-width.

    References:
        Cleveland, Journal of the American Statistical Association 74, 1979. Chapter 3 teaches it.
    """

    def inside(self, u: Tensor) -> Tensor:
        return 3 * (-(u**3)).log1p()
