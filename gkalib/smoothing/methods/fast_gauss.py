"""The improved fast Gauss transform: Gaussian sums by Taylor expansions around clusters of keys."""

import math
from collections.abc import Callable
from itertools import accumulate

import torch
from jaxtyping import Float
from torch import Tensor

from gkalib.masks import KeyPadding, parts
from gkalib.normalizers import RowSum, Unnormalized
from gkalib.smoothing.methods.gauss_plan import GaussPlan, plan, reach_of
from gkalib.smoothing.methods.method import Method
from gkalib.smoothing.problem import Problem


class FastGauss(Method):
    r"""Gaussian sums to a stated error, by expansions around the centers of clusters of keys.

    $$\sum_j q_j e^{-\|y - x_j\|^2/2\sigma^2} \approx
    \sum_{k:\, \|y - c_k\| \le r + r_x}\; \sum_{|\alpha| < p}
    C^k_\alpha\, e^{-\|y - c_k\|^2/2\sigma^2} \Big(\frac{y - c_k}{\sigma}\Big)^\alpha, \qquad
    C^k_\alpha = \frac{1}{\alpha!} \sum_{j \in k} q_j e^{-\|x_j - c_k\|^2/2\sigma^2}
    \Big(\frac{x_j - c_k}{\sigma}\Big)^\alpha$$

    The papers write h = √2 σ. Each sum is wrong by at most ε Σ|q_j|. Any kernel with a form is a Gaussian
    whose keys have votes (chapter 4), and the votes are part of q. ``RowSum`` divides two such sums, so a row
    whose weights sum to less than ε of all votes is not determined; it is zero where its sum is not positive.

    Keys are clustered by farthest points; the number of clusters and p are those with the fewest
    multiplications that keep the bound. For a gradient p is one more, and the clusters are constants.

    Args:
        eps: ε, the error relative to Σ|q|.
        order: p; None is planned.
        clusters: their number; None is planned. With ``order`` given too, the bound is what it is and not ε.
        memory: bytes for the terms of a block of queries or keys.

    Raises:
        ValueError: if ``eps`` is not between 0 and 1 or a count is below 1; in use, if there are more
            clusters than keys, no order keeps the bound with them, or the terms do not fit into ``memory``.

    References:
        Yang, Duraiswami and Gumerov, Improved fast Gauss transform, 2003; Morariu et al., 2008. Chapter 13
        teaches it.
    """

    name = "fast-gauss"
    exact = False

    def __init__(
        self, eps: float = 1e-3, *, order: int | None = None, clusters: int | None = None, memory: int = 2**26
    ):
        if not 0 < eps < 1:
            raise ValueError(f"FastGauss: eps must lie between 0 and 1, not {eps}")
        for label, count in (("order", order), ("clusters", clusters), ("memory", memory)):
            if count is not None and count < 1:
                raise ValueError(f"FastGauss: {label} must be at least 1, not {count}")
        self.eps, self.order, self.clusters, self.memory = eps, order, clusters, memory

    def refuses(self, problem: Problem) -> str | None:
        form = problem.form()
        if form is None:
            return f"{type(problem.kernel).__name__} has no form scale · q·k + a(q) + b(k)"
        if form.lag_table is not None:
            return "a kernel of the lag is no Gaussian of query and key"
        if not isinstance(problem.normalizer, RowSum | Unnormalized):
            return f"{problem.normalizer!r} needs the weights one by one"
        strange = [part for part in parts(problem.mask) if not isinstance(part, KeyPadding)]
        if strange:
            return f"{strange[0]!r} does not leave one sum for all queries; KeyPadding does"
        return None

    def plan(
        self, query: Float[Tensor, "n d"], key: Float[Tensor, "m d"], *, sigma: float = 1.0, width: int = 1
    ) -> GaussPlan:
        """What the transform of one head would do.

        Args:
            query: ``[n d]``.
            key: ``[m d]``.
            sigma: σ.
            width: e, the number of sums, without the one for the denominator.

        Raises:
            ValueError: if there are more clusters than keys.
        """
        return self._plan(query.detach() / sigma, key.detach() / sigma, width)[0]

    def __call__(self, problem: Problem) -> Tensor:
        form = problem.form()
        assert form is not None  # else it refuses
        query, key, value = problem.upcast()
        # The kernel is a Gaussian of points in units of σ, times a vote of the key and a factor of the query.
        root = torch.as_tensor(form.scale, dtype=query.dtype, device=query.device).sqrt()
        points, sources = root * query, root * key
        votes = sources.square().sum(-1, keepdim=True) / 2
        factor = points.square().sum(-1, keepdim=True) / 2
        if form.key_bias is not None:
            votes = votes + form.key_bias(key)[..., None]
        if form.query_bias is not None:
            factor = factor + form.query_bias(query)[..., None]
        for part in parts(problem.mask):
            assert isinstance(part, KeyPadding)  # else it refuses
            exists = torch.arange(key.shape[2], device=key.device) < part.lengths[:, None]
            votes = votes.masked_fill(~exists[:, None, :, None], -torch.inf)
        largest = votes.detach().amax(2, keepdim=True).clamp(min=torch.finfo(votes.dtype).min)
        # One more value column, of ones, sums the weights.
        value = torch.cat([value, torch.ones_like(value[..., :1])], dim=-1) * (votes - largest).exp()
        sums = torch.stack(
            [
                self._transform(*one, needs_grad=problem.needs_grad)
                for one in zip(points.flatten(0, 1), sources.flatten(0, 1), value.flatten(0, 1), strict=True)
            ]
        ).unflatten(0, query.shape[:2])
        out, total = sums[..., :-1], sums[..., -1:]
        if isinstance(problem.normalizer, RowSum):
            if problem.normalizer.eps:
                total = total + problem.normalizer.eps * (-largest - factor).exp()
            nothing = total <= 0
            out = (out / total.masked_fill(nothing, 1.0)).masked_fill(nothing, 0.0)
        else:
            out = out * (largest + factor).exp()
        return out.to(problem.query.dtype)

    def _transform(self, points: Tensor, sources: Tensor, weights: Tensor, *, needs_grad: bool) -> Tensor:
        """Σ_j weights_j exp(−‖points − sources_j‖²/2), ``[n e]``."""
        with torch.no_grad():
            chosen, centers = self._plan(points, sources, weights.shape[1] - 1)
            labels = torch.cdist(sources, centers).argmin(1)
            near = torch.cdist(points, centers) <= reach_of(self.eps) + chosen.radius
        # The derivative of an expansion with one degree more is an expansion of the derivative.
        order, dim = chosen.order + needs_grad, points.shape[1]
        terms = math.comb(order - 1 + dim, dim)
        size = terms * points.element_size()
        if size > self.memory:
            raise ValueError(
                f"fast-gauss: an expansion of order {order} in {dim} dimensions has {terms} terms, "
                f"more than fit into {self.memory} bytes"
            )
        block = self.memory // size
        unit = torch.eye(dim).to(points)
        exponents = _graded(points.new_zeros(1, dim), lambda i, terms: terms + unit[i], dim, order)
        factorials = torch.lgamma(exponents + 1).sum(1).exp()
        out = points.new_zeros(points.shape[0], weights.shape[1])
        for cluster, center in enumerate(centers):
            coefficients = sum(
                _terms(sources[part] - center, order) @ weights[part]
                for part in (labels == cluster).nonzero()[:, 0].split(block)
            )
            coefficients = coefficients / factorials[:, None]
            for part in near[:, cluster].nonzero()[:, 0].split(block):
                out = out.index_add(0, part, _terms(points[part] - center, order).T @ coefficients)
        return out

    def _plan(self, query: Tensor, key: Tensor, width: int) -> tuple[GaussPlan, Tensor]:
        return plan(query, key, width + 1, eps=self.eps, order=self.order, clusters=self.clusters)


def _terms(offsets: Tensor, order: int) -> Tensor:
    """exp(−‖u‖²/2) u^α for every |α| < order, ``[terms n]``."""
    start = (-offsets.square().sum(1) / 2).exp()[None]
    return _graded(start, lambda i, terms: terms * offsets[:, i], offsets.shape[1], order)


def _graded(one: Tensor, times: Callable[[int, Tensor], Tensor], dim: int, order: int) -> Tensor:
    """All monomials below a degree from the one of degree zero, each made once: a variable multiplies the
    monomials of the degree before that hold no earlier variable.
    """
    degree, starts, found = one, [0] * dim, [one]
    for _ in range(1, order):
        pieces = [times(i, degree[starts[i] :]) for i in range(dim)]
        starts = [0, *accumulate(len(piece) for piece in pieces)][:dim]
        degree = torch.cat(pieces)
        found.append(degree)
    return torch.cat(found)
