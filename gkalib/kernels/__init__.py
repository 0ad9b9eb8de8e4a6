"""Similarity functions: what a smoother takes for near."""

from gkalib.kernels.bank import DecayingPeriodicBank
from gkalib.kernels.base import FeatureMap, Form, Kernel, Mixture, Product
from gkalib.kernels.dot import ExpDot
from gkalib.kernels.features import Dot, Elu, FeatureKernel, PositiveRandom, RandomFourier
from gkalib.kernels.position import LagTable
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
    "Tricube",
]
