"""From scores to weights: what a smoother does with a row of similarities."""

from gkalib.normalizers.averages import Dropout, PerHead, RowSum, Simplex, TopK, Unnormalized
from gkalib.normalizers.base import Normalizer
from gkalib.normalizers.kan import BASES, Basis, BSpline, Fourier, Rational, Units, Wavelet, basis
from gkalib.normalizers.row_operator import RowOperator

__all__ = [
    "BASES",
    "BSpline",
    "Basis",
    "Dropout",
    "Fourier",
    "Normalizer",
    "PerHead",
    "Rational",
    "RowOperator",
    "RowSum",
    "Simplex",
    "TopK",
    "Units",
    "Unnormalized",
    "Wavelet",
    "basis",
]
