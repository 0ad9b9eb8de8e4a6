"""Kernel regression on tables: scikit-learn estimators over `smooth`, and a learned metric."""

from gkalib.regression import metric
from gkalib.regression.estimators import LocalLinear, NadarayaWatson

__all__ = ["LocalLinear", "NadarayaWatson", "metric"]
