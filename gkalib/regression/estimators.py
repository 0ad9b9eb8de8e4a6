"""The two regressions of Part I: a local constant and a local line."""

import torch
from torch import Tensor

from gkalib.regression.base import KernelRegressor

FLAT = 1e-3  # the spread of neighbors, in the units of places, below which no slope is fitted


class NadarayaWatson(KernelRegressor):
    r"""Nadaraya–Watson regression: the average of the responses, weighed by how near they are.

    $$\hat y(x) = \frac{\sum_j s_j\, \kappa_h(x, x_j)\, y_j}{\sum_j s_j\, \kappa_h(x, x_j)}$$

    Args:
        kernel: κ, a name such as ``"gaussian"``, a class such as ``Gaussian`` or another function from a
            bandwidth to a kernel.
        bandwidth: h in the units of X. A number is handed to ``kernel``; one number per feature divides the
            features, and the kernel gets 1. ``"scott"`` and ``"silverman"`` are rules of thumb for the
            Gaussian, each feature in proportion to its standard deviation; ``"loo"`` and ``"kfold"`` take the
            multiple of Scott's bandwidths with the lowest squared error on samples left out, at the cost of
            about forty fits. Above a thousand samples ``"loo"`` in one dimension, with a ``Stationary``
            kernel, sums over places rounded to a 16th of the bandwidth; all else takes a thousand samples
            drawn at random, and a warning says so.
        folds: how many folds ``"kfold"`` deals the samples out to, in turn.

    Attributes:
        bandwidth_: the bandwidth used, a number or one per feature.
        X_, y_, sample_weight_: the samples of positive weight, s_j being the weight.
        loo_score_: the mean squared error of leaving each sample out.
        degrees_of_freedom_: tr W.
        noise_: the standard deviation of a response of weight one.

    Raises:
        ValueError: by ``fit`` and ``predict``, see there.

    References:
        Nadaraya, Theory of Probability and its Applications 9, 1964; Watson, Sankhyā A 26, 1964.
        Chapters 1 and 2 teach it.
    """

    def _values(self, place: Tensor, y: Tensor) -> Tensor:
        return y

    def _estimate(self, moments: Tensor, place: Tensor, places: Tensor) -> Tensor:
        return moments

    def _equivalent(self, weights: Tensor, place: Tensor, places: Tensor) -> Tensor:
        return weights


class LocalLinear(KernelRegressor):
    r"""Local-linear regression: the height at x of the line fitted to the samples near x.

    $$\hat y(x) = \hat\alpha, \qquad (\hat\alpha, \hat\beta) =
    \arg\min_{\alpha, \beta} \sum_j s_j\, \kappa_h(x, x_j) \left(y_j - \alpha - \beta^\top(x_j - x)\right)^2$$

    Solved in closed form from the neighbors' weighted means and covariances. In a direction in which the
    neighbors spread by less than a thousandth of the bandwidth or of the standard deviation, whichever is
    less, the slope is zero as in ``NadarayaWatson``: so it is far away, where one sample has all the weight.

    Args:
        kernel, bandwidth, folds: as for ``NadarayaWatson``.

    Attributes:
        bandwidth_, X_, y_, sample_weight_, loo_score_, degrees_of_freedom_, noise_: as of ``NadarayaWatson``.

    Raises:
        ValueError: by ``fit`` and ``predict``, see there.

    References:
        Stone, Annals of Statistics 5, 1977; Fan, Journal of the American Statistical Association 87, 1992.
        Chapter 2 repairs the boundary with it.
    """

    def _values(self, place: Tensor, y: Tensor) -> Tensor:
        squares = (place[:, :, None] * place[:, None, :]).flatten(1)
        products = (place[:, :, None] * y[:, None, :]).flatten(1)
        return torch.cat([place, squares, y, products], 1)

    def _estimate(self, moments: Tensor, place: Tensor, places: Tensor) -> Tensor:
        d = place.shape[1]
        outputs = moments.shape[1] // (1 + d) - d
        mean, squares, height, products = moments.split([d, d * d, outputs, d * outputs], 1)
        shared = products.unflatten(1, (d, outputs)) - mean[:, :, None] * height[:, None, :]
        tilt = _tilt(mean, squares, place, places)
        return height + (tilt[:, None, :] @ shared)[:, 0]

    def _equivalent(self, weights: Tensor, place: Tensor, places: Tensor) -> Tensor:
        d = place.shape[1]
        mean, squares = (weights @ self._values(places, places[:, :0])).split([d, d * d], 1)
        tilt = _tilt(mean, squares, place, places)
        return weights * (1 + tilt @ places.T - (tilt * mean).sum(1, keepdim=True))


def _tilt(mean: Tensor, squares: Tensor, place: Tensor, places: Tensor) -> Tensor:
    """The step from the neighbors' mean to the query, over the neighbors' covariance: ``[n d]``."""
    spread = squares.unflatten(1, mean.shape[1:] * 2) - mean[:, :, None] * mean[:, None, :]
    # A variance near the rounding error of the squares that it is the difference of is no variance either.
    rounding = 16 * torch.finfo(places.dtype).eps * places.square().max()
    least = rounding.clamp(min=FLAT**2)
    if spread.shape[-1] == 1:  # many times faster
        inverse = (1 / spread).masked_fill(spread <= least, 0.0)
    else:
        inverse = torch.linalg.pinv(spread, atol=least, rtol=0.0, hermitian=True)
    return ((place - mean)[:, None, :] @ inverse)[:, 0]
