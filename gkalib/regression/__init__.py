"""Kernel regression on tables: scikit-learn estimators over `smooth`."""

from gkalib.regression.estimators import LocalLinear, NadarayaWatson

__all__ = ["LocalLinear", "NadarayaWatson"]
