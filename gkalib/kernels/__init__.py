"""Similarity functions: what a smoother takes for near."""

from gkalib.kernels.base import Bank, FeatureMap, Form, Kernel, Mixture, Product, over_heads
from gkalib.kernels.dot import ExpDot
from gkalib.kernels.features import Dot, Elu, FeatureKernel, PositiveRandom, RandomFourier
from gkalib.kernels.position import ALiBi, DecayingPeriodicBank, Kerple, LagKernel, LagTable, T5Buckets
from gkalib.kernels.stationary import (
    Boxcar,
    Epanechnikov,
    Gaussian,
    Laplace,
    Matern,
    Periodic,
    RationalQuadratic,
    Stationary,
    Tricube,
)

__all__ = [
    "ALiBi",
    "Bank",
    "Boxcar",
    "DecayingPeriodicBank",
    "Dot",
    "Elu",
    "Epanechnikov",
    "ExpDot",
    "FeatureKernel",
    "FeatureMap",
    "Form",
    "Gaussian",
    "Kernel",
    "Kerple",
    "LagKernel",
    "LagTable",
    "Laplace",
    "Matern",
    "Mixture",
    "Periodic",
    "PositiveRandom",
    "Product",
    "RandomFourier",
    "RationalQuadratic",
    "Stationary",
    "T5Buckets",
    "Tricube",
    "over_heads",
]
