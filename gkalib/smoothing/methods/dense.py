"""Every kernel as matrix products, a block of queries at a time, in a stated memory."""

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from gkalib.kernels import Form, over_heads
from gkalib.shapes import Scores, Weights
from gkalib.smoothing.methods.method import Method, centered
from gkalib.smoothing.problem import Problem
from gkalib.smoothing.reference import reference_weights

CACHED = 2**24  # bytes of a block of weights that a CPU's caches hold; larger ones were several times slower


def form_scores(problem: Problem, form: Form, query: Tensor, key: Tensor, rows: slice | None) -> Scores:
    """The score from the kernel's form for some of the queries, −∞ where masked."""
    query, key, of_key = centered(problem, query, key)
    query = query if rows is None else query[:, :, rows]
    result = over_heads(form.scale) * (query @ key.mT)
    of_query = form.query_term(query)
    if of_query is not None:
        result = result + of_query[..., None]
    if of_key is not None:
        result = result + of_key[..., None, :]
    if form.lag_table is not None:
        result = result + problem.lag_scores(rows)
    return problem.masked(result, rows)


def dense_weights(problem: Problem, rows: slice | None = None) -> Weights:
    """The weights for some of the queries, through the kernel's form where it has one."""
    lines = problem.normalizer.of_vectors
    if problem.kernel.signed or (problem.form is None and not lines):
        return reference_weights(problem, rows)
    query, key, _ = problem.upcast()
    if problem.form is None:
        return problem.weights(problem.scores(query, key, rows), query, key, rows)
    return problem.weights(form_scores(problem, problem.form, query, key, rows), query, key, rows)


class Dense(Method):
    """Scores by matrix products where the kernel has a form, by its definition where not, in blocks of
    queries.

    A block of weights takes at most ``memory`` bytes; a few such blocks live at once. For a gradient the
    blocks are computed again in the backward pass, so memory stays linear in the number of queries there too.
    Without a gradient a CPU works in blocks of 16 MiB at most, which its caches hold.

    Args:
        memory: bytes for one block of weights.

    Raises:
        ValueError: if ``memory`` is not positive.

    Chapter 16 measures it.
    """

    name = "dense"

    def __init__(self, memory: int = 2**28):
        if memory <= 0:
            raise ValueError(f"Dense: memory must be a positive number of bytes, not {memory}")
        self.memory = memory

    def refuses(self, problem: Problem) -> str | None:
        return None

    def block(self, problem: Problem) -> int:
        """How many queries are computed at once."""
        batch, heads, queries, keys = problem.sizes
        numbers = keys + problem.query.shape[3] ** 2 if problem.normalizer.of_vectors else keys
        row = max(batch, 1) * heads * numbers * max(problem.query.element_size(), 4)
        cached = problem.query.device.type == "cpu" and not problem.needs_grad
        return max(1, min(queries, (min(self.memory, CACHED) if cached else self.memory) // row))

    def __call__(self, problem: Problem) -> Tensor:
        queries, block = problem.sizes[2], self.block(problem)
        if block >= queries:
            return _rows(problem, None)
        blocks = [slice(start, min(start + block, queries)) for start in range(0, queries, block)]
        if problem.needs_grad:
            return torch.cat([_rows_again(problem, rows) for rows in blocks], dim=2)
        # Written in place: a small output kept per block would split the freed blocks, and memory would grow.
        out = problem.value.new_empty(*problem.query.shape[:3], problem.value.shape[-1])
        for rows in blocks:
            out[:, :, rows] = _rows(problem, rows)
        return out


def _rows(problem: Problem, rows: slice | None) -> Tensor:
    """The output for some of the queries."""
    value = problem.upcast()[2]
    return (dense_weights(problem, rows).to(value.dtype) @ value).to(problem.query.dtype)


def _rows_again(problem: Problem, rows: slice) -> Tensor:
    """The output for some of the queries, computed once more in the backward pass instead of kept."""
    out = checkpoint(_rows, problem, rows, use_reentrant=False)
    assert out is not None
    return out
