"""The improved fast Gauss transform: Gaussian sums by Taylor expansions around clusters of keys."""

import math
from collections.abc import Callable
from itertools import accumulate
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gkalib.kernels import over_heads
from gkalib.masks import KeyPadding
from gkalib.normalizers import RowSum
from gkalib.shapes import check_counts, check_counts_or_none
from gkalib.smoothing.methods.method import (
    Method,
    centered,
    existing_keys,
    no_form,
    no_pairs,
    no_rule_but,
    no_sums,
)
from gkalib.smoothing.problem import Problem

ORDERS = range(1, 200)  # tried until the bound holds


class GaussPlan(NamedTuple):
    """How a fast Gauss transform of given queries and keys proceeds, and what it costs.

    Args:
        order: p; an expansion has the terms of degree below p.
        clusters: the number of clusters.
        radius: r_x, the largest distance of a key from its cluster's center, in units of σ.
        terms: the number of terms of an expansion, C(p − 1 + d, d).
        near: how many clusters a query reaches on average.
        bound: the error bound relative to Σ|q|.
        operations: multiplications of the whole, clustering included.
        direct: multiplications of the sum without expansions.
    """

    order: int
    clusters: int
    radius: float
    terms: int
    near: float
    bound: float
    operations: float
    direct: float


def gauss_bound(radius: float, order: int, *, sigma: float = 1.0, reach: float = math.inf) -> float:
    r"""The largest error of a truncated expansion for a key of weight one.

    $$\frac{1}{p!}\left(\frac{r_x b}{\sigma^2}\right)^{p} e^{-(b - r_x)^2/2\sigma^2}, \qquad
    b = \min\Big(\tfrac12\big(r_x + \sqrt{r_x^2 + 4p\sigma^2}\big),\; r_x + r\Big)$$

    Args:
        radius: r_x, the largest distance of a key from its cluster's center.
        order: p; terms of degree below p are kept.
        sigma: σ.
        reach: r; queries farther than r + r_x from the center do not use the expansion.

    Raises:
        ValueError: if ``order`` is below 1, ``radius`` negative, or ``sigma`` or ``reach`` not positive.

    References:
        Morariu et al., Automatic online tuning for fast Gaussian summation, 2008. Chapter 13 derives it.
    """
    if order < 1 or radius < 0 or sigma <= 0 or reach <= 0:
        raise ValueError(
            "gauss_bound: order must be at least 1, radius not negative, sigma and reach positive, not "
            f"order {order}, radius {radius}, sigma {sigma}, reach {reach}"
        )
    if radius == 0:
        return 0.0
    a, r = radius / sigma, reach / sigma
    b = min((a + math.sqrt(a * a + 4 * order)) / 2, a + r)
    log_bound = order * math.log(a * b) - math.lgamma(order + 1) - (b - a) ** 2 / 2
    return math.exp(log_bound) if log_bound < 700 else math.inf


def reach_of(eps: float) -> float:
    """The distance, in units of σ, beyond which a Gaussian is below ε."""
    return math.sqrt(2 * math.log(1 / eps))


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
        ValueError: in use, if there are more clusters than keys, no order keeps the bound with them, or the
            terms do not fit into ``memory``.

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
        check_counts_or_none("FastGauss", order=order, clusters=clusters)
        check_counts("FastGauss", memory=memory)
        self.eps, self.order, self.clusters, self.memory = eps, order, clusters, memory

    def refuses(self, problem: Problem) -> str | None:
        form = problem.form
        if form is None:
            return no_form(problem)
        if form.lag_table is not None:
            return "a kernel of the lag is no Gaussian of query and key"
        why = "does not leave one sum for all queries; KeyPadding does"
        return no_sums(problem) or no_rule_but(problem, KeyPadding, why=why) or no_pairs(problem)

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
        return self._plan(query.detach() / sigma, key.detach() / sigma, width + 1)[0]

    def __call__(self, problem: Problem) -> Tensor:
        form = problem.form
        assert form is not None  # else it refuses
        query, key, value = problem.upcast()
        query, key, of_key = centered(problem, query, key)
        # The kernel is a Gaussian of points in units of σ, times a vote of the key and a factor of the query.
        root = torch.as_tensor(over_heads(form.scale), dtype=query.dtype, device=query.device).sqrt()
        points, sources = root * query, root * key
        votes = sources.square().sum(-1, keepdim=True) / 2
        factor = points.square().sum(-1, keepdim=True) / 2
        of_query = form.query_term(query)
        if of_key is not None:
            votes = votes + of_key[..., None]
        if of_query is not None:
            factor = factor + of_query[..., None]
        exists = existing_keys(problem)
        votes = votes if exists is None else votes.masked_fill(~exists, -torch.inf)
        largest = votes.detach().amax(2, keepdim=True).clamp(min=torch.finfo(votes.dtype).min)
        # One more value column, of ones, sums the weights.
        value = torch.cat([value, torch.ones_like(value[..., :1])], dim=-1) * (votes - largest).exp()
        sums = torch.stack(
            [
                self._transform(*head, needs_grad=problem.needs_grad)
                for head in zip(points.flatten(0, 1), sources.flatten(0, 1), value.flatten(0, 1), strict=True)
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
            chosen, centers = self._plan(points, sources, weights.shape[1])
            labels = torch.cdist(sources, centers).argmin(1)
            near = torch.cdist(points, centers) <= reach_of(self.eps) + chosen.radius
        # The derivative of an expansion with one degree more is an expansion of the derivative.
        order, dim = chosen.order + needs_grad, points.shape[1]
        terms = math.comb(order - 1 + dim, dim)
        size = terms * points.element_size()
        if size > self.memory:
            raise ValueError(
                f"FastGauss: an expansion of order {order} in {dim} dimensions has {terms} terms, "
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
        """The plan with the fewest multiplications that keeps the bound at ε, and its clusters' centers.

        The number of clusters is doubled as long as that may pay. With each key its own cluster the bound is
        zero, so there always is a plan.

        Args:
            query: ``[n d]``, in units of σ.
            key: ``[m d]``, in units of σ.
            width: the number of sums.

        Raises:
            ValueError: if there are more clusters than keys, or no order keeps the bound with them.
        """
        eps, order, clusters = self.eps, self.order, self.clusters
        (queries, dim), keys = query.shape, key.shape[0]
        if clusters is not None and clusters > keys:
            raise ValueError(f"FastGauss: clusters {clusters} is above the {keys} keys")
        reach = reach_of(eps)
        centers, distance = [0], (key - key[0]).norm(dim=1)
        count, best = clusters or 1, None
        while True:
            while len(centers) < count:  # the farthest point is the next center
                centers.append(int(distance.argmax()))
                distance = torch.minimum(distance, (key - key[centers[-1]]).norm(dim=1))
            radius = distance.max().item()
            near = (torch.cdist(query, key[centers]) <= reach + radius).sum().item() / queries
            overhead = (queries + keys) * count * dim
            orders = ORDERS if order is None else [order]
            bounds = ((p, gauss_bound(radius, p, reach=reach)) for p in orders)
            p, bound = next(((p, b) for p, b in bounds if b <= eps or (order and clusters)), (None, math.inf))
            if p is not None:
                terms = math.comb(p - 1 + dim, dim)
                operations = overhead + (keys + queries * near) * terms * (width + 1)
                if best is None or operations < best[0].operations:
                    cost = (operations, queries * keys * (dim + width))
                    best = GaussPlan(p, count, radius, terms, near, bound, *cost), key[centers]
            if clusters is not None or count == keys or (best is not None and overhead > best[0].operations):
                break
            count = min(2 * count, keys)
        if best is None:
            limit = f"above {ORDERS[-1]}" if order is None else f"other than {order}"
            raise ValueError(f"FastGauss: {clusters} clusters need an order {limit} for eps {eps}")
        return best


def _terms(offsets: Tensor, order: int) -> Tensor:
    """exp(−‖u‖²/2) u^α for every |α| < order, ``[terms n]``."""
    start = (-offsets.square().sum(1) / 2).exp()[None]
    return _graded(start, lambda i, terms: terms * offsets[:, i], offsets.shape[1], order)


def _graded(first: Tensor, times: Callable[[int, Tensor], Tensor], dim: int, order: int) -> Tensor:
    """All monomials below a degree from the first, of degree zero, each made once: a variable multiplies the
    monomials of the degree before that hold no earlier variable.
    """
    degree, starts, monomials = first, [0] * dim, [first]
    for _ in range(1, order):
        pieces = [times(i, degree[starts[i] :]) for i in range(dim)]
        starts = [0, *accumulate(len(piece) for piece in pieces)][:dim]
        degree = torch.cat(pieces)
        monomials.append(degree)
    return torch.cat(monomials)
