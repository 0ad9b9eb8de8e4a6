"""The slots that laws and agreement tests run over: one line a kernel, mask, normalizer or shape."""

from collections.abc import Callable
from dataclasses import dataclass
from math import pi, sqrt

import torch
from torch import Tensor

from gkalib import kernels, masks, normalizers

HEADS = 4
SIGMAS = torch.tensor([0.8, 1.0, 1.5, 3.0], dtype=torch.float64)


@dataclass(frozen=True)
class KernelCase:
    """A kernel and what it claims; ``make(d)`` builds one for head dimension d."""

    make: Callable[[int], kernels.Kernel]
    symmetric: bool = True
    semidefinite: bool = True  # positive semi-definite in three dimensions
    shift_invariant: bool = True
    rotation_invariant: bool = True


def _random_bank(_: int) -> kernels.Kernel:
    return kernels.DecayingPeriodicBank(HEADS, 5, sigma=0.5, length=20.0, tau=(2.0, 9.0)).double()


KERNELS = {
    "gaussian": KernelCase(lambda d: kernels.Gaussian(SIGMAS)),
    "gaussian-number": KernelCase(lambda d: kernels.Gaussian(1.3)),
    "expdot": KernelCase(lambda d: kernels.ExpDot(), shift_invariant=False),
    "expdot-heads": KernelCase(lambda d: kernels.ExpDot(SIGMAS / 4), shift_invariant=False),
    "laplace": KernelCase(lambda d: kernels.Laplace(SIGMAS)),
    "matern-1/2": KernelCase(lambda d: kernels.Matern(SIGMAS, nu=0.5)),
    "matern-3/2": KernelCase(lambda d: kernels.Matern(2.0, nu=1.5)),
    "matern-5/2": KernelCase(lambda d: kernels.Matern(SIGMAS, nu=2.5)),
    "rational-quadratic": KernelCase(lambda d: kernels.RationalQuadratic(SIGMAS, alpha=0.7)),
    "periodic": KernelCase(lambda d: kernels.Periodic(SIGMAS, period=5.0), semidefinite=False),
    "epanechnikov": KernelCase(lambda d: kernels.Epanechnikov(3 * SIGMAS), semidefinite=False),
    "boxcar": KernelCase(lambda d: kernels.Boxcar(3 * SIGMAS), semidefinite=False),
    "tricube": KernelCase(lambda d: kernels.Tricube(3 * SIGMAS), semidefinite=False),
    "bank": KernelCase(_random_bank),
    "alibi": KernelCase(lambda d: kernels.ALiBi(HEADS).double()),
    "product": KernelCase(lambda d: kernels.Gaussian(SIGMAS) * kernels.ExpDot(0.1), shift_invariant=False),
    "product-with-bank": KernelCase(lambda d: kernels.Gaussian(2.0) * _random_bank(d)),
    "mixture": KernelCase(lambda d: kernels.Gaussian(1.0) + kernels.Laplace(SIGMAS)),
    "elu": KernelCase(lambda d: kernels.Elu(), shift_invariant=False, rotation_invariant=False),
    "positive-random": KernelCase(
        lambda d: kernels.PositiveRandom(d, 16), shift_invariant=False, rotation_invariant=False
    ),
    "random-fourier": KernelCase(lambda d: kernels.RandomFourier(d, 64, sigma=4.0), rotation_invariant=False),
    "dot": KernelCase(lambda d: kernels.Dot(), shift_invariant=False),
}

MASKS: dict[str, Callable[[int, int, int], masks.Mask | Tensor | None]] = {
    "none": lambda b, n, m: None,
    "causal": lambda b, n, m: masks.Causal(),
    "window": lambda b, n, m: masks.Window(5),
    "causal-window": lambda b, n, m: masks.Causal() & masks.Window(4),
    "padding": lambda b, n, m: masks.KeyPadding(torch.arange(b) * (m // 2)),  # the first sequence has no key
    "causal-padding": lambda b, n, m: masks.Causal() & masks.KeyPadding(torch.full((b,), max(1, m - 2))),
    "document": lambda b, n, m: masks.Document(torch.arange(m) // 7),
    "function": lambda b, n, m: lambda b, h, q, k: (2 * q + k + h) % 5 != 0,
    "pairs": lambda b, n, m: (torch.arange(n)[:, None] * 7 + torch.arange(m) * 3) % 4 != 1,
}

NORMALIZERS: dict[str, Callable[[], normalizers.Normalizer]] = {
    "row-sum": normalizers.RowSum,
    "row-sum-eps": lambda: normalizers.RowSum(eps=1e-2),
    "unnormalized": normalizers.Unnormalized,
    "top-k": lambda: normalizers.TopK(3),
    "simplex": normalizers.Simplex,
}

# batch, key heads, n, m, d, e: lengths 1, 17, 63, 100; odd widths; n ≠ m; e ≠ d; grouped heads
SHAPES = {
    "one": (2, HEADS, 1, 1, 8, 8),
    "odd": (2, HEADS, 17, 17, 5, 3),
    "rectangular": (1, HEADS, 17, 63, 16, 9),
    "grouped": (2, 2, 63, 63, 8, 12),
    "long": (1, 1, 100, 100, 40, 40),
}


def tensors(shape: str, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value of a shape; scaled so that rows attend to a few keys, whatever the width."""
    batch, groups, n, m, d, e = SHAPES[shape]
    spread = sqrt(8 / d) * pi / 3
    query = spread * torch.randn(batch, HEADS, n, d, dtype=torch.float64)
    key = spread * torch.randn(batch, groups, m, d, dtype=torch.float64)
    value = torch.randn(batch, groups, m, e, dtype=torch.float64)
    return query.to(dtype), key.to(dtype), value.to(dtype)
