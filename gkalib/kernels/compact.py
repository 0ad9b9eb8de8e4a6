"""Kernels that are zero beyond one bandwidth."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from gkalib.kernels.stationary import Stationary


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
        sigma: σ, the half-width, in the units of q: a positive number, 0-d tensor or one value per head
            ``[h]``.

    Raises:
        ValueError: if ``sigma`` is not positive and finite, or of another shape.

    References:
        Epanechnikov, Theory of Probability and its Applications 14, 1969. Chapter 1 teaches it.
    """

    def inside(self, u: Tensor) -> Tensor:
        return (-u.square()).log1p()


class Boxcar(_Compact):
    r"""The boxcar kernel: a plain average of what is nearer than σ.

    $$\kappa(q, k) = 1 \text{ where } \|q - k\| < \sigma, \text{ else } 0$$

    Args:
        sigma: σ, the half-width, in the units of q: a positive number, 0-d tensor or one value per head
            ``[h]``.

    Raises:
        ValueError: if ``sigma`` is not positive and finite, or of another shape.

    References:
        Rosenblatt, Annals of Mathematical Statistics 27, 1956. Chapter 1 teaches it.
    """

    def inside(self, u: Tensor) -> Tensor:
        return 0 * u


class Tricube(_Compact):
    r"""The tricube kernel of locally weighted regression.

    $$\kappa(q, k) = \max(0, 1 - \|q - k\|^3/\sigma^3)^3$$

    Args:
        sigma: σ, the half-width, in the units of q: a positive number, 0-d tensor or one value per head
            ``[h]``.

    Raises:
        ValueError: if ``sigma`` is not positive and finite, or of another shape.

    References:
        Cleveland, Journal of the American Statistical Association 74, 1979. Chapter 1 teaches it.
    """

    def inside(self, u: Tensor) -> Tensor:
        return 3 * (-(u**3)).log1p()
