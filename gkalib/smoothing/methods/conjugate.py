"""Conjugate gradients: local linear regression, and ridge regression in a state, without a matrix a query."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gkalib.normalizers import Dropout, Normalizer
from gkalib.shapes import check_counts_or_none, constant, readable
from gkalib.smoothing.local_line import LocalLine
from gkalib.smoothing.methods.dense import Dense
from gkalib.smoothing.methods.method import Method
from gkalib.smoothing.problem import Problem

LEFT = 1e-3  # of a right side: what is left of it after all steps is no rounding any more


def conjugate_gradients(product: Callable[[Tensor], Tensor], right: Tensor, steps: int) -> Tensor:
    """x of A x = b for every vector along the last axis, A symmetric and positive definite.

    On a CPU in eager mode it stops where every residual is rounding; elsewhere it takes all steps.

    Args:
        product: from x to A x, all vectors at once.
        right: b, ``[… d]``.
        steps: at most so many; d are enough but for rounding.
    """
    x, residual = torch.zeros_like(right), right
    direction, size = right, right.square().sum(-1, keepdim=True)
    goal = size * (4 * torch.finfo(right.dtype).eps) ** 2
    for _ in range(steps):
        if readable(size) and (size <= goal).all():
            break
        image = product(direction)
        curvature = (direction * image).sum(-1, keepdim=True)
        step = size / curvature.masked_fill(curvature <= 0, torch.inf)
        x, residual = x + step * direction, residual - step * image
        before, size = size, residual.square().sum(-1, keepdim=True)
        direction = residual + size / before.masked_fill(before == 0, 1.0) * direction
    return x


class Solved(torch.autograd.Function):
    r"""Conjugate gradients with the gradient of the solution, whatever steps were taken.

    $$A(\theta)\, x = b, \qquad A\, y = \partial L / \partial x, \qquad
    \partial L / \partial b = y, \qquad
    \partial L / \partial \theta = -y^\top \partial (A x) / \partial \theta$$

    ``product(x, *theta)`` is A x.
    """

    @staticmethod
    def forward(
        ctx: Any, product: Callable[..., Tensor], steps: int, right: Tensor, *theta: Tensor
    ) -> Tensor:
        x = conjugate_gradients(lambda vectors: product(vectors, *theta), right, steps)
        ctx.product, ctx.steps = product, steps
        ctx.save_for_backward(x, *theta)
        return x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, *theta = ctx.saved_tensors
        y = conjugate_gradients(lambda vectors: ctx.product(vectors, *theta), grad, ctx.steps)
        with torch.enable_grad():
            theta = [each.detach().requires_grad_() for each in theta]
            grads = torch.autograd.grad(ctx.product(x, *theta), theta, -y)
        return None, None, y, *grads


def _spread(x: Tensor, weights: Tensor, key: Tensor, mean: Tensor, ridge: Tensor) -> Tensor:
    """(C + λI) x of every query, as two products with the weights."""
    return (weights * (x @ key.mT)) @ key - (mean * x).sum(-1, keepdim=True) * mean + ridge * x


def _squares(
    x: Tensor, squares: Tensor, key: Tensor, pairs: Tensor, carried: Tensor, ridge: Tensor
) -> Tensor:
    """(H_t + λI) x_t of every token of a chunk that a memory reads."""
    return carried * (x @ squares) + (pairs * (x @ key.mT)) @ key + ridge * x


PRODUCTS = {"line": _spread, "state": _squares}


def _solved(product: str, steps: int, right: Tensor, *theta: Tensor) -> Any:
    """A function of tensors, numbers and a name, as a traced graph can hold it."""
    return Solved.apply(PRODUCTS[product], steps, right, *theta)


@constant
def _in_graph() -> None:
    """Let a graph that is being traced hold ``_solved`` as it is."""
    torch.compiler.allow_in_graph(_solved)


def solved(product: str, steps: int, right: Tensor, *theta: Tensor) -> Tensor:
    """x of A(θ) x = b by conjugate gradients; ``product`` names A x, one of ``PRODUCTS``."""
    if torch.compiler.is_dynamo_compiling():
        _in_graph()
    return _solved(product, steps, right, *theta)


class Conjugate(Method):
    r"""Lines at every query by conjugate gradients: the matrix C of a query is never formed.

    $$(C + \lambda I)\, p = \sum_j \tilde w_j (k_j - \bar k)\big((k_j - \bar k)^\top p\big) + \lambda p$$

    A step is two products with the weights, O(n m d) for all queries. Queries come in blocks, as in
    ``dense``. The gradient is that of the solution, by a second system with the same matrix.

    Args:
        steps: at most so many; None is 4d, of which d are enough but for rounding.
        memory: bytes for one block of weights.

    Raises:
        ValueError: if ``steps`` or ``memory`` is below 1; in use, where numbers can be looked at and
            ``steps`` is None, if they were too few: then the matrix of a query is singular.

    References:
        Hestenes and Stiefel, 1952; Zuo et al., Local Linear Attention, 2025. Chapter 14 writes it by hand.
    """

    name = "conjugate"

    def __init__(self, steps: int | None = None, *, memory: int = 2**28):
        check_counts_or_none("Conjugate", steps=steps)
        self.steps, self.dense = steps, Dense(memory)

    def refuses(self, problem: Problem) -> str | None:
        normalizer = _inner(problem.normalizer)
        if not isinstance(normalizer, LocalLine):
            return "it solves for the slopes of degree=1"
        return None if normalizer.slope is None else "the slopes are given, so that there is nothing to solve"

    def __call__(self, problem: Problem) -> Tensor:
        normalizer = problem.normalizer
        line = _inner(normalizer)
        assert isinstance(line, LocalLine)  # else it refuses
        own: Normalizer = LocalLine(line.ridge, solve=self.solve)
        if isinstance(normalizer, Dropout):
            own = Dropout(own, normalizer.p).train(normalizer.training)
        return self.dense(replace(problem, normalizer=own))

    def solve(self, weights: Tensor, key: Tensor, mean: Tensor, ridge: Tensor, right: Tensor) -> Tensor:
        """p of every query; the arguments are those of ``by_cholesky``."""
        steps = 4 * key.shape[-1] if self.steps is None else self.steps
        theta = weights, key, mean, ridge
        p = solved("line", steps, right, *theta)
        if self.steps is None and readable(p) and p.numel():
            left = (right - _spread(p, *theta)).detach().norm(dim=-1)
            left = left.masked_fill(weights.detach().sum(-1) == 0, 0.0)
            if not (left <= LEFT * right.detach().norm(dim=-1)).all():
                raise ValueError(
                    f"smooth: conjugate: {steps} steps do not solve for the slopes; ridge= needs a positive "
                    "number, or a larger one"
                )
        return p


def _inner(normalizer: Normalizer) -> Normalizer:
    """What a dropout of weights stands around."""
    return normalizer.normalizer if isinstance(normalizer, Dropout) else normalizer
