"""Fused operations for a GPU."""

from torch import Tensor

from gkalib.smoothing.method import Method
from gkalib.smoothing.problem import Problem


class Fused(Method):
    """One GPU program for a whole problem. None is part of this version: it refuses with the reason."""

    name = "fused"

    def refuses(self, problem: Problem) -> str | None:
        if problem.query.device.type != "cuda":
            return f"fused operations run on a CUDA device, and the query is on {problem.query.device}"
        return f"no fused operation for {type(problem.kernel).__name__} is part of this version"

    def __call__(self, problem: Problem) -> Tensor:
        raise AssertionError("a method that refuses every problem was called")
