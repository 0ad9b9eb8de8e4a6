"""What the two regressions share: weighted samples, the bandwidth, and what is read off the smoother."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from numbers import Integral, Real

import numpy as np
import torch
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor

from gkalib.kernels import Gaussian, Kernel, Stationary
from gkalib.regression.bandwidth import RULES, lowest, scott, silverman, spread
from gkalib.smoothing import attention_weights, smooth

BLOCK = 2**24  # bytes of one block of weights: few enough to stay in the cache while they are worked on


class KernelRegressor(RegressorMixin, MultiOutputMixin, BaseEstimator, ABC):
    """A regression whose prediction is read off the moments of the neighbors of a query."""

    # Without types: scikit-learn wants a constructor that takes anything, and the complaint in `fit`.
    def __init__(self, kernel=Gaussian, *, bandwidth="loo", folds=10):
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.folds = folds

    @abstractmethod
    def _values(self, place: Tensor, y: Tensor) -> Tensor:
        """What is smoothed, one row a sample: ``[m d]`` and ``[m p]`` to ``[m e]``."""

    @abstractmethod
    def _estimate(self, moments: Tensor, place: Tensor, places: Tensor) -> Tensor:
        """The prediction ``[n p]`` at ``place`` ``[n d]`` from the smoothed values ``[n e]``."""

    @abstractmethod
    def _equivalent(self, weights: Tensor, place: Tensor, places: Tensor) -> Tensor:
        """The weights of y in the prediction, from the kernel's, ``[n m]``."""

    def fit(self, X, y, sample_weight=None):
        """Keep the samples and choose the bandwidth.

        Args:
            X: inputs, ``[m d]``.
            y: responses, ``[m]`` or ``[m p]``.
            sample_weight: how often each sample counts, ``[m]``; samples of weight zero are dropped.

        Raises:
            ValueError: if the data is empty or not finite, a weight is negative, the kernel cannot be used
                here, or the bandwidth is none or cannot be chosen.
        """
        checked = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        X, y = (np.asarray(each, np.float64) for each in checked)
        if sample_weight is not None and not np.any(np.asarray(sample_weight)):
            raise ValueError(f"{self._name}: every sample has weight zero")
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        counts = weight > 0
        self.X_, self.y_, self.sample_weight_ = X[counts], y[counts], weight[counts]
        self._kernel(1.0)
        self.bandwidth_ = self._bandwidth()
        return self

    def predict(self, X):
        """The regression at ``X`` ``[n d]``: ``[n]`` or ``[n p]``, like y.

        Raises:
            ValueError: if queries have no neighbor, with their rows; if X is not finite or of another width.
        """
        query, key, kernel, place, places = self._problem(self._inputs(X), self.bandwidth_)
        values = self._values(places, self._responses())
        value = torch.cat([values, values.new_ones(len(values), 1)], 1)
        moments = smooth(query, key, value[None, None], kernel, bias=self._votes)[0, 0]
        self._refuse_empty(moments[:, -1] == 0)
        return self._shaped(self._estimate(moments[:, :-1], place, places))

    def weights(self, X):
        """The smoother matrix W ``[n m]`` with ``predict(X) = W @ y_``; its rows sum to one.

        Raises:
            ValueError: as ``predict``.
        """
        return torch.cat(list(self._smoother(self._inputs(X)))).numpy()

    def effective_neighbors(self, X):
        r"""How many samples each prediction averages, $(\sum_j w_{ij})^2 / \sum_j w_{ij}^2$, ``[n]``.

        Raises:
            ValueError: as ``predict``.
        """
        return torch.cat([1 / block.square().sum(1) for block in self._smoother(self._inputs(X))]).numpy()

    @property
    def degrees_of_freedom_(self) -> float:
        """The trace of W at the samples: how many parameters the fit spends."""
        check_is_fitted(self)
        start, trace = 0, 0.0
        for block in self._smoother(self.X_):
            trace += block.diagonal(start).sum().item()
            start += len(block)
        return trace

    @property
    def loo_score_(self) -> float:
        """The mean squared error of ``leave_one_out``; infinite if a sample has no other neighbor."""
        check_is_fitted(self)
        return self._score(self.bandwidth_, self._alone())

    def leave_one_out(self):
        r"""The prediction at each sample from all others, in closed form: ``[m]`` or ``[m p]``.

        $$\hat y_{-i} = y_i - \frac{y_i - \hat y_i}{1 - W_{ii}}$$

        A sample of weight above one loses one repetition, as if it stood in the table that often. NaN where
        nothing is left.
        """
        check_is_fitted(self)
        return self._shaped(self._held_out(self.bandwidth_, *self._alone()))

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _inputs(self, X) -> np.ndarray:
        check_is_fitted(self)
        return np.asarray(validate_data(self, X, dtype=np.float64, reset=False))

    @property
    def _votes(self) -> Tensor:
        """The logarithm of the samples' weights, which is added to the kernel's."""
        return torch.from_numpy(np.log(self.sample_weight_))

    def _responses(self) -> Tensor:
        return torch.from_numpy(self.y_.reshape(len(self.y_), -1))

    def _shaped(self, prediction: Tensor) -> np.ndarray:
        return prediction.numpy().reshape(-1, *self.y_.shape[1:])

    def _kernel(self, bandwidth: float) -> Kernel:
        """The kernel of that bandwidth, if regression can use it."""
        if isinstance(self.kernel, Kernel) or not callable(self.kernel):
            raise ValueError(
                f"{self._name}: kernel must be a class such as Gaussian, or a function from a bandwidth to a "
                f"kernel, not {self.kernel!r}"
            )
        kernel = self.kernel(bandwidth)
        if not isinstance(kernel, Kernel):
            raise ValueError(f"{self._name}: kernel({bandwidth}) gives {kernel!r}, which is no kernel")
        label = type(kernel).__name__
        if kernel.of_lag:
            raise ValueError(
                f"{self._name}: {label} is a kernel of the lag between positions, and samples have none"
            )
        if kernel.signed:
            raise ValueError(f"{self._name}: {label} may be negative, and its weights would be no average")
        if kernel.heads() not in (None, 1):
            raise ValueError(
                f"{self._name}: {label} has parameters for {kernel.heads()} heads, regression has one"
            )
        return kernel

    def _problem(self, X: np.ndarray, bandwidth) -> tuple[Tensor, Tensor, Kernel, Tensor, Tensor]:
        """Query and key, the kernel, and the places of both in fitting units."""
        alone = np.ndim(bandwidth) == 0
        kernel = self._kernel(float(bandwidth) if alone else 1.0)
        center = self.X_.mean(0)
        # A stationary kernel sees differences only; taken from the middle of the data they lose fewer digits.
        origin = center if isinstance(kernel, Stationary) else np.zeros_like(center)
        unit = 1.0 if alone else bandwidth
        query, key = (torch.from_numpy((each - origin) / unit) for each in (X, self.X_))
        unit = np.minimum(bandwidth, spread(self.X_, self.sample_weight_))
        place, places = (torch.from_numpy((each - center) / unit) for each in (X, self.X_))
        return query[None, None], key[None, None], kernel, place, places

    def _blocks(self, query: Tensor, key: Tensor, kernel: Kernel) -> Iterator[tuple[slice, Tensor]]:
        """The kernel's weights, some queries at a time."""
        step = max(1, BLOCK // (8 * key.shape[2]))
        for start in range(0, query.shape[2], step):
            rows = slice(start, min(start + step, query.shape[2]))
            yield (
                rows,
                attention_weights(query[:, :, rows], key, kernel, bias=self._votes, method="dense")[0, 0],
            )

    def _smoother(self, X: np.ndarray) -> Iterator[Tensor]:
        """The smoother matrix, some rows at a time."""
        query, key, kernel, place, places = self._problem(X, self.bandwidth_)
        for rows, weights in self._blocks(query, key, kernel):
            self._refuse_empty(weights.sum(1) == 0, rows.start)
            yield self._equivalent(weights, place[rows], places)

    def _refuse_empty(self, empty: Tensor, first: int = 0) -> None:
        if empty.any():
            rows = (empty.nonzero()[:, 0] + first).tolist()
            named = ", ".join(map(str, rows[:8])) + (", …" if len(rows) > 8 else "")
            raise ValueError(
                f"{self._name}: no sample lies within reach of {len(rows)} of the queries, rows {named}: "
                "a larger bandwidth or a kernel without bounds, such as Gaussian, would reach them"
            )

    def _bandwidth(self) -> float | np.ndarray:
        """The bandwidth: as it is given, by a rule, or with the lowest error on samples left out."""
        given, count = self.bandwidth, self.X_.shape[1]
        if isinstance(given, str) and given in RULES:
            rule = silverman if given == "silverman" else scott
            chosen = rule(self.X_, self.sample_weight_)
            if given in ("loo", "kfold"):
                chosen = chosen * self._factor(chosen, self._alone() if given == "loo" else self._folds())
            return float(chosen[0]) if count == 1 else chosen
        numbers = (
            np.asarray(given, np.float64) if isinstance(given, Real | list | tuple | np.ndarray) else None
        )
        if numbers is None or numbers.shape not in ((), (count,)) or isinstance(given, bool):
            raise ValueError(
                f"{self._name}: bandwidth must be a number, one number for each of the {count} features, "
                f"or one of {', '.join(RULES)}, not {given!r}"
            )
        if not (np.isfinite(numbers).all() and (numbers > 0).all()):
            raise ValueError(f"{self._name}: bandwidth must be positive and finite, not {given!r}")
        return float(numbers) if numbers.ndim == 0 else numbers

    def _factor(self, unit: np.ndarray, held_out: tuple[Tensor, Tensor]) -> float:
        """The multiple of the bandwidths ``unit`` with the lowest error on samples left out."""
        if len(self.X_) < 2:
            raise ValueError(f"{self._name}: bandwidth={self.bandwidth!r} needs more than 1 sample")
        reach = 2 * float((np.ptp(self.X_, axis=0) / unit).max())
        return lowest(
            lambda factor: self._score(self._single(factor * unit), held_out), 2**-8, max(reach, 1.0)
        )

    def _single(self, bandwidth: np.ndarray) -> float | np.ndarray:
        return float(bandwidth[0]) if len(bandwidth) == 1 else bandwidth

    def _alone(self) -> tuple[Tensor, Tensor]:
        """Each sample in a fold of its own, and the share of its weight that stays if it is left out once."""
        weight = torch.from_numpy(self.sample_weight_)
        return torch.arange(len(weight)), (1 - 1 / weight).clamp(min=0)

    def _folds(self) -> tuple[Tensor, Tensor]:
        """Samples dealt out to the folds in turn; nothing of a fold stays when it is left out."""
        if not (isinstance(self.folds, Integral) and self.folds > 1):
            raise ValueError(f"{self._name}: folds must be a whole number above 1, not {self.folds!r}")
        return torch.arange(len(self.X_)) % self.folds, torch.zeros(len(self.X_), dtype=torch.float64)

    def _held_out(self, bandwidth, fold: Tensor, stays: Tensor) -> Tensor:
        """The prediction at each sample without the weights of its own fold: ``[m p]``, NaN if none stay."""
        query, key, kernel, place, places = self._problem(self.X_, bandwidth)
        values, parts = self._values(places, self._responses()), []
        for rows, weights in self._blocks(query, key, kernel):
            weights = torch.where(fold[rows, None] == fold, weights * stays, weights)
            total = weights.sum(1, keepdim=True)
            moments = weights @ values / total.where(total > 0, 1.0)
            estimate = self._estimate(moments, place[rows], places)
            parts.append(estimate.where(total > 0, torch.nan))
        return torch.cat(parts)

    def _score(self, bandwidth, held_out: tuple[Tensor, Tensor]) -> float:
        """The weighted mean squared error without the own fold, infinite where a prediction is missing."""
        error = (self._responses() - self._held_out(bandwidth, *held_out)).square().mean(1).numpy()
        return float(np.average(error, weights=self.sample_weight_)) if np.isfinite(error).all() else math.inf
