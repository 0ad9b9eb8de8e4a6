"""The definition of a smoother, written to be read and never optimized."""

import torch
from torch import Tensor

from gkalib.shapes import Weights
from gkalib.smoothing.methods.method import Method
from gkalib.smoothing.problem import Problem


def reference_weights(problem: Problem, rows: slice | None = None) -> Weights:
    """The weights w_ij by definition, for some of the queries; half precision is computed in float32."""
    query, key, _ = problem.upcast()
    if problem.kernel.signed:
        values = problem.kernel(query if rows is None else query[:, :, rows], key, problem.lag(rows))
        allowed = problem.allowed(rows)
        return problem.normalizer.of_values(values if allowed is None else values.masked_fill(~allowed, 0.0))
    if problem.normalizer.of_vectors:  # it solves equations, whose matrix may be near to singular
        dtype, query, key = query.dtype, query.double(), key.double()
        return problem.weights(problem.scores(query, key, rows), query, key, rows).to(dtype)
    return problem.normalizer(problem.scores(query, key, rows))


class Reference(Method):
    r"""The definition: scores, mask, normalizer, weighted sum.

    $$\mathrm{out}_i = \sum_j w_{ij} v_j, \qquad
    w_{i\cdot} = \mathrm{normalize}_j(\mathrm{mask}_{ij} \cdot \kappa(q_i, k_j))$$

    Memory in proportion to b h n m. Chapter 4 builds it by hand.
    """

    name = "reference"

    def refuses(self, problem: Problem) -> str | None:
        return None

    def __call__(self, problem: Problem) -> Tensor:
        value = problem.upcast()[2]
        weights = reference_weights(problem).to(value.dtype)
        return torch.matmul(weights, value).to(problem.query.dtype)
