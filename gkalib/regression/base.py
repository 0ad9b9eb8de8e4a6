"""What the two regressions share: weighted samples, the bandwidth, and what is read off the smoother."""

import copy
import difflib
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor

from gkalib import kernels
from gkalib.kernels import Gaussian, Kernel, Periodic, Stationary
from gkalib.regression.bandwidth import RULES, lowest, rounded, scott, silverman, size, spread, summed
from gkalib.smoothing import attention_weights, smooth

NAMES = ("Boxcar", "Epanechnikov", "Gaussian", "Laplace", "Matern", "RationalQuadratic", "Tricube")
NAMED = {name.lower(): getattr(kernels, name) for name in NAMES}
BLOCK = 2**24  # bytes of one block of weights: few enough to stay in the cache while they are worked on
EXACT = 1000  # samples up to which a search for the bandwidth takes every pair as it is


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
            sample_weight: how much each sample counts beside the others, ``[m]``: repetitions, or one over
                its variance. A common factor changes nothing; samples of weight zero are dropped.

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

    def predict(self, X, return_std=False) -> Any:
        r"""The regression at ``X`` ``[n d]``: ``[n]`` or ``[n p]``, like y; with its standard error if asked.

        $$\mathrm{se}(x) = \hat\sigma \sqrt{\textstyle\sum_j w_j(x)^2 / s_j}$$

        w is a row of ``weights``, s the samples' weights, σ̂ is ``noise_``; se has the unit and the shape of
        the prediction. It is what repeated samples at the same places would scatter by, if responses are
        independent and of variance σ²/s, and the bandwidth is given. Bias is left out: ± 1.96 se covers the
        mean of such predictions, and the regression itself less often, least at peaks and borders. A new
        response of weight s deviates by the root of se² + σ̂²/s. Costs two smoother matrices.

        Raises:
            ValueError: if queries have no neighbor, with their rows; if X is not finite or of another width;
                for the standard error, as ``noise_``.

        References:
            Hastie and Tibshirani, Generalized additive models, 1990, chapter 3.
        """
        query, key, kernel, place, places = self._problem(self._inputs(X), self.bandwidth_)
        values = self._values(places, self._responses())
        value = torch.cat([values, values.new_ones(len(values), 1)], 1)
        moments = smooth(query, key, value[None, None], kernel, bias=self._votes)[0, 0]
        self._refuse_empty(moments[:, -1] == 0)
        prediction = self._shaped(self._estimate(moments[:, :-1], place, places))
        if not return_std:
            return prediction
        counts = torch.from_numpy(self.sample_weight_)
        error = torch.cat([(block.square() / counts).sum(1) for block in self._smoother(self._inputs(X))])
        return prediction, self._shaped(error.sqrt()[:, None] * torch.from_numpy(np.atleast_1d(self.noise_)))

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
    def noise_(self) -> float | np.ndarray:
        r"""The standard deviation σ̂ of a response of weight one, in its units: a number, or one per output.

        $$\hat\sigma^2 = \frac{1}{f} \sum_i s_i (y_i - \hat y_i)^2, \qquad
        f = n - 2\,\mathrm{tr}\,W + \sum_{ij} s_i w_{ij}^2 / s_j$$

        Its square is unbiased where the fit is, and too large elsewhere. Copies count once in n.

        Raises:
            ValueError: if the fit passes through every sample.

        References:
            Cleveland and Devlin, Journal of the American Statistical Association 83, 1988.
        """
        check_is_fitted(self)
        counts, y = torch.from_numpy(self.sample_weight_), self._responses()
        n = int(self._alone().max()) + 1
        start, freedom, squares = 0, float(n), torch.zeros(y.shape[1], dtype=y.dtype)
        for block in self._smoother(self.X_):
            rows = slice(start, start := start + len(block))
            freedom -= 2 * block.diagonal(rows.start).sum().item()
            freedom += (counts[rows, None] * block.square() / counts).sum().item()
            squares += (counts[rows, None] * (y[rows] - block @ y).square()).sum(0)
        if freedom <= 1e-9 * n:
            raise ValueError(
                f"{self._name}: the fit passes through every sample and leaves no residual to tell the noise "
                "by: a larger bandwidth would"
            )
        noise = (squares / freedom).sqrt().numpy()
        return noise if self.y_.ndim > 1 else float(noise[0])

    @property
    def loo_score_(self) -> float:
        """The mean squared error of ``leave_one_out``; infinite if a sample has no other neighbor.

        Where the search for the bandwidth rounds places, so does this.
        """
        check_is_fitted(self)
        return self._score(self.bandwidth_, self._alone())

    def leave_one_out(self):
        r"""The prediction at each sample from all others, in closed form: ``[m]`` or ``[m p]``.

        $$\hat y_{-i} = y_i - \frac{y_i - \hat y_i}{1 - W_{ii}}$$

        A sample is left out with all its weight, and with its copies: rows alike in X and y, if no two rows
        are alike in X alone, as chance would make some. NaN where nothing is left.
        """
        check_is_fitted(self)
        return self._shaped(self._held_out(self.bandwidth_, self._alone()))

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
        given = self.kernel
        if isinstance(given, str):
            name = given.lower().replace("_", "").replace("-", "")
            if name not in NAMED:
                near = [f"did you mean {each!r}? " for each in difflib.get_close_matches(name, NAMED, 1)]
                raise ValueError(
                    f"{self._name}: no kernel {given!r}; {''.join(near)}Known: {', '.join(NAMED)}"
                )
            given = NAMED[name]
        if isinstance(given, Kernel) or not callable(given):
            raise ValueError(
                f"{self._name}: kernel must be a name, a class such as Gaussian, or a function from a "
                f"bandwidth to a kernel, not {given!r}"
            )
        kernel = given(bandwidth)
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
            chosen = rule(self.X_, self.sample_weight_, size(self.sample_weight_, self._alone().numpy()))
            if given in ("loo", "kfold"):
                chosen = chosen * self._factor(chosen)
            return self._single(chosen)
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
        return self._single(np.atleast_1d(numbers))

    def _factor(self, unit: np.ndarray) -> float:
        """The multiple of the bandwidths ``unit`` with the lowest error on samples left out."""
        count = len(self.X_)
        if count < 2:
            raise ValueError(f"{self._name}: bandwidth={self.bandwidth!r} needs more than 1 sample")
        if count > EXACT and not (self.bandwidth == "loo" and self._rounds()):
            warnings.warn(
                f"{self._name}: the bandwidth is chosen on {EXACT} of the {count} samples, drawn at random, "
                f"and scaled to all by the power -1/{4 + len(unit)} of their number; a bandwidth given as a "
                "number is taken as it is",
                stacklevel=4,
            )
            part, rows = copy.copy(self), np.random.default_rng(0).choice(count, EXACT, replace=False)
            part.X_, part.y_, part.sample_weight_ = self.X_[rows], self.y_[rows], self.sample_weight_[rows]
            number = size(part.sample_weight_, part._alone().numpy())
            return part._factor(scott(part.X_, part.sample_weight_, number))
        fold = self._alone() if self.bandwidth == "loo" else self._folds()
        reach = 2 * float((np.ptp(self.X_, axis=0) / unit).max())
        return lowest(lambda factor: self._score(self._single(factor * unit), fold), 2**-8, max(reach, 1.0))

    def _single(self, bandwidth: np.ndarray) -> float | np.ndarray:
        return float(bandwidth[0]) if len(bandwidth) == 1 else bandwidth

    def _alone(self) -> Tensor:
        """A fold for each sample, ``[m]``; one for a sample and its copies."""
        rows = np.column_stack([self.X_, self.y_.reshape(len(self.y_), -1)])
        _, first, number = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        if len(first) > len(np.unique(self.X_, axis=0)):
            return torch.arange(len(rows))
        return torch.from_numpy(np.unique(first[number.ravel()], return_inverse=True)[1])

    def _folds(self) -> Tensor:
        """The folds that samples are dealt out to in turn, copies to the same, ``[m]``."""
        if not (isinstance(self.folds, Integral) and self.folds > 1):
            raise ValueError(f"{self._name}: folds must be a whole number above 1, not {self.folds!r}")
        return self._alone() % self.folds

    def _held_out(self, bandwidth, fold: Tensor, rows: np.ndarray | slice = slice(None)) -> Tensor:
        """The prediction at samples without those of their own fold: ``[rows p]``, NaN if none are left."""
        query, key, kernel, place, places = self._problem(self.X_[rows], bandwidth)
        values, own, parts = self._values(places, self._responses()), fold[rows], []
        for block, weights in self._blocks(query, key, kernel):
            weights = weights.masked_fill(own[block, None] == fold, 0.0)
            total = weights.sum(1, keepdim=True)
            moments = weights @ values / total.where(total > 0, 1.0)
            estimate = self._estimate(moments, place[block], places)
            parts.append(estimate.where(total > 0, torch.nan))
        return torch.cat(parts)

    def _rounds(self) -> bool:
        """Whether sums over pairs can be taken over rounded places: one feature, a kernel with a width."""
        kernel = self._kernel(1.0)
        return self.X_.shape[1] == 1 and isinstance(kernel, Stationary) and not isinstance(kernel, Periodic)

    def _held_out_rounded(self, bandwidth: float, fold: Tensor) -> Tensor:
        """As ``_held_out`` of ``_alone`` for one feature, from convolutions over rounded places.

        Samples to which next to nothing is left, less than transforms are exact to, are computed as they are.
        """
        x, weight, parts, kernel = self.X_[:, 0], self.sample_weight_, [], self._kernel(bandwidth)
        assert isinstance(kernel, Stationary)  # else nothing is rounded
        bins, lag, kappa = rounded(x, kernel)
        place = torch.from_numpy(lag[:, None] / min(bandwidth, spread(self.X_, weight)[0]))
        middle, few = np.average(self._responses(), axis=0, weights=weight), np.zeros(len(x), bool)
        for y in (self._responses().numpy() - middle).T:
            # Values are linear in the response: those of a zero, and what a response of one adds to them.
            none, one = (self._values(place, torch.full_like(place, each)).numpy() for each in (0.0, 1.0))
            bare = kappa[:, None] * np.column_stack([np.ones(len(lag)), none])
            added = kappa[:, None] * np.column_stack([np.zeros(len(lag)), one - none])
            terms = [(weight, bare), (weight * y, added)]
            everything = left = summed(bins, terms)
            for counts, around in terms:  # a sample and its copies lie at one place, at lag zero
                left = left - np.bincount(fold, counts)[fold, None] * around[len(lag) // 2]
            few = left[:, 0] <= 1e-8 * everything[:, 0].max()
            moments = torch.from_numpy(left[:, 1:] / np.where(few, 1.0, left[:, 0])[:, None])
            parts.append(self._estimate(moments, 0 * moments[:, :1], 0 * place))
        held_out = torch.cat(parts, 1) + torch.from_numpy(middle)
        if few.any():
            held_out[few] = self._held_out(bandwidth, fold, few)
        return held_out

    def _score(self, bandwidth, fold: Tensor) -> float:
        """The weighted mean squared error without the own fold, infinite where a prediction is missing."""
        rounded = len(fold) > EXACT and self._rounds()
        held_out = (self._held_out_rounded if rounded else self._held_out)(bandwidth, fold)
        error = (self._responses() - held_out).square().mean(1).numpy()
        return float(np.average(error, weights=self.sample_weight_)) if np.isfinite(error).all() else math.inf
