"""The one function, `smooth`, and the methods that compute it."""

from gkalib.smoothing.api import (
    METHODS,
    Explanation,
    attention_weights,
    compute_output,
    compute_weights,
    explain,
    smooth,
)
from gkalib.smoothing.cache import Cache, Recurrent
from gkalib.smoothing.fused import Fused
from gkalib.smoothing.memories import Memory, MemoryProblem, State
from gkalib.smoothing.methods.conjugate import Conjugate
from gkalib.smoothing.methods.dense import Dense
from gkalib.smoothing.methods.fast_gauss import FastGauss, GaussPlan, gauss_bound
from gkalib.smoothing.methods.flex import Flex
from gkalib.smoothing.methods.landmarks import Nystrom, Skyformer
from gkalib.smoothing.methods.linear import Linear
from gkalib.smoothing.methods.linformer import Linformer
from gkalib.smoothing.methods.method import Method
from gkalib.smoothing.methods.padded import Padded
from gkalib.smoothing.methods.toeplitz import Toeplitz
from gkalib.smoothing.problem import Problem, make_problem
from gkalib.smoothing.reference import Reference

__all__ = [
    "METHODS",
    "Cache",
    "Conjugate",
    "Dense",
    "Explanation",
    "FastGauss",
    "Flex",
    "Fused",
    "GaussPlan",
    "Linear",
    "Linformer",
    "Memory",
    "MemoryProblem",
    "Method",
    "Nystrom",
    "Padded",
    "Problem",
    "Recurrent",
    "Reference",
    "Skyformer",
    "State",
    "Toeplitz",
    "attention_weights",
    "explain",
    "gauss_bound",
    "make_problem",
    "smooth",
    "compute_output",
    "compute_weights",
]
