"""The one function, `smooth`, and the methods that compute it."""

from gkalib.smoothing.cache import Cache
from gkalib.smoothing.dense import Dense
from gkalib.smoothing.dispatch import (
    METHODS,
    Explanation,
    attention_weights,
    explain,
    smooth,
    solve,
    weights_of,
)
from gkalib.smoothing.fast_gauss import FastGauss
from gkalib.smoothing.flex import Flex
from gkalib.smoothing.fused import Fused
from gkalib.smoothing.gauss_plan import GaussPlan, gauss_bound
from gkalib.smoothing.landmarks import Nystrom, Skyformer
from gkalib.smoothing.linear import Linear
from gkalib.smoothing.linformer import Linformer
from gkalib.smoothing.method import Method
from gkalib.smoothing.padded import Padded
from gkalib.smoothing.problem import Problem, pose
from gkalib.smoothing.recurrent import Recurrent
from gkalib.smoothing.reference import Reference
from gkalib.smoothing.toeplitz import Toeplitz

__all__ = [
    "METHODS",
    "Cache",
    "Dense",
    "Explanation",
    "FastGauss",
    "Flex",
    "Fused",
    "GaussPlan",
    "Linear",
    "Linformer",
    "Method",
    "Nystrom",
    "Padded",
    "Problem",
    "Recurrent",
    "Reference",
    "Skyformer",
    "Toeplitz",
    "attention_weights",
    "explain",
    "gauss_bound",
    "pose",
    "smooth",
    "solve",
    "weights_of",
]
