"""How a fast Gauss transform proceeds: clusters of keys, the order that keeps its error bound, the cost."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

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


def plan(
    query: Tensor, key: Tensor, width: int, *, eps: float, order: int | None, clusters: int | None
) -> tuple[GaussPlan, Tensor]:
    """The plan with the fewest multiplications that keeps the bound at ε, and the centers of its clusters.

    The number of clusters is doubled as long as that may pay. With each key its own cluster the bound is
    zero, so there always is a plan.

    Args:
        query: ``[n d]``, in units of σ.
        key: ``[m d]``, in units of σ.
        width: the number of sums.
        eps: ε.
        order, clusters: p and the number of clusters, where they are given; where both are, the bound is
            what it is.

    Raises:
        ValueError: if there are more clusters than keys, or no order keeps the bound with them.
    """
    (queries, dim), keys = query.shape, key.shape[0]
    if clusters is not None and clusters > keys:
        raise ValueError(f"fast-gauss: clusters {clusters} is above the {keys} keys")
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
        found = next((one for one in bounds if one[1] <= eps or (order and clusters)), None)
        if found is not None:
            terms = math.comb(found[0] - 1 + dim, dim)
            operations = overhead + (keys + queries * near) * terms * (width + 1)
            if best is None or operations < best[0].operations:
                cost = (operations, queries * keys * (dim + width))
                best = GaussPlan(found[0], count, radius, terms, near, found[1], *cost), key[centers]
        if clusters is not None or count == keys or (best is not None and overhead > best[0].operations):
            break
        count = min(2 * count, keys)
    if best is None:
        limit = f"above {ORDERS[-1]}" if order is None else f"other than {order}"
        raise ValueError(f"fast-gauss: {clusters} clusters need an order {limit} for eps {eps}")
    return best
