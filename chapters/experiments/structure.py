"""When sums by structure are faster than sums pair by pair: seconds against length and dimension.

Chapter 13 reads the records.
"""

import math
from functools import partial

import numpy as np
import torch
from torch import Tensor

from gkalib.bench.timing import processor_seconds
from gkalib.experiments.runner import Measured
from gkalib.kernels import Elu, Gaussian, Kernel, LagTable
from gkalib.normalizers import Unnormalized
from gkalib.smoothing import FastGauss, Method, smooth

LENGTHS, WIDTHS = (512, 1024, 2048, 4096, 8192), (8, 16, 32, 64)  # tokens; features and value columns
POINTS, DIMENSIONS, SIGMA, EPS = 4096, (1, 2, 3, 4), 0.5, 1e-2  # uniform in the unit cube


@torch.no_grad()
def seconds(tensors: list[Tensor], kernel: Kernel, method: str | Method) -> float:
    """Seconds of this process's only thread for one sum, the least of three runs."""
    return processor_seconds(partial(smooth, *tensors, kernel, normalizer=Unnormalized(), method=method), 3)


def by_length(method: str) -> dict[str, float]:
    """Kernelized attention with a table of lags, one head, by length and by width of features and values."""
    metrics = {}
    for width in WIDTHS:
        for length in LENGTHS:
            tensors = list(torch.randn(3, 1, 1, length, width))
            metrics[f"seconds_{width}_{length}"] = seconds(tensors, Elu() * LagTable(1, length), method)
    return metrics


def share_of_pairs(dim: int, sigma: float, count: int) -> float:
    """Multiplications of the fast Gauss transform over those of all pairs, for uniform points in a unit cube.

    The best plan of 4, 16, 64 or 256 clusters for an error of one percent, from 100,000 points on of 256
    alone. Infinite where each would need an order that no plan allows.
    """
    queries, keys = torch.as_tensor(np.random.default_rng(dim).uniform(size=(2, count, dim)))
    shares = [math.inf]
    for clusters in (4, 16, 64, 256) if count < 10**5 else (256,):
        try:
            plan = FastGauss(EPS, clusters=clusters).plan(queries, keys, sigma=sigma)
        except ValueError:  # so few clusters would need an order above 199
            continue
        shares.append(plan.operations / plan.direct)
    return min(shares)


def by_dimension(method: str | Method) -> dict[str, float]:
    """One Gaussian sum for each of many points, by their dimension."""
    metrics = {}
    for dim in DIMENSIONS:
        points = torch.rand(2, 1, 1, POINTS, dim, dtype=torch.float64)
        value = torch.rand(1, 1, POINTS, 1, dtype=torch.float64)
        metrics[f"seconds_{dim}"] = seconds([*points, value], Gaussian(SIGMA), method)
        if isinstance(method, FastGauss):
            plan = method.plan(points[0, 0, 0], points[1, 0, 0], sigma=SIGMA)
            metrics |= {f"clusters_{dim}": plan.clusters, f"terms_{dim}": plan.terms}
            metrics[f"operations_{dim}"] = plan.operations / plan.direct
    return metrics


MEASURED = Measured(
    name="structure",
    arms={
        "toeplitz": lambda seed: (by_length("toeplitz"), []),
        "pairs-of-tokens": lambda seed: (by_length("dense"), []),
        "fast-gauss": lambda seed: (by_dimension(FastGauss(EPS)), []),
        "pairs-of-points": lambda seed: (by_dimension("dense"), []),
    },
    recipe=lambda arm: {"arm": arm, "threads": 1},
    threads=1,
)

EXPERIMENTS = {MEASURED.name: MEASURED}
