"""From scores to weights: what a smoother does with a row of similarities."""

from gkalib.normalizers.base import Normalizer
from gkalib.normalizers.bases import BASES, Basis, BSpline, Fourier, Rational, Wavelet, basis
from gkalib.normalizers.learned import RowOperator
from gkalib.normalizers.per_head import PerHead
from gkalib.normalizers.row_sum import RowSum
from gkalib.normalizers.simplex import Simplex
from gkalib.normalizers.top_k import TopK
from gkalib.normalizers.units import Units
from gkalib.normalizers.unnormalized import Unnormalized

__all__ = [
    "BASES",
    "BSpline",
    "Basis",
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
