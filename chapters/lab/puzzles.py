"""The tests of the puzzles in chapters 17 to 20: a reader's kernel is run, judged and drawn.

``three`` and ``one`` judge the kernels of chapter 18 itself. Each other function but ``merging`` takes a
kernel under ``triton.jit`` with the signature of the chapter's stub, and returns what ``attempt`` draws. A
right kernel, but for chapter 17's first ones, is also compiled for an H100, in bfloat16 and at a larger size,
and what came of it is printed.
The tensors are drawn from torch's generator.
"""

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from chapters.lab.exact import one_tensor, three_tensors
from chapters.lab.page import Compiled, compiled
from chapters.lab.watch import attempt

B = 16
Part = tuple[Tensor, Tensor]


def _scale(value: float) -> Tensor:
    return torch.tensor([value], dtype=torch.float64)


def _half(*sides: int) -> Tensor:
    """A tensor to compile for, which decides by its type alone: ``[1024 64]`` where no sides are given."""
    return torch.zeros(sides or (1024, 64), dtype=torch.bfloat16)


def twice(kernel: Any) -> Figure:
    """Twice a column of 37 elements, in blocks of 16: chapter 17."""
    x, out = torch.randn(2, 37, 1, dtype=torch.float64)
    return attempt(kernel, 3, x, out, 37, B=B, expected={"out": 2 * x})


def long_sum(kernel: Any) -> Figure:
    """The sums of three rows of 100 elements, an instance for each row: chapter 17."""
    x, out = torch.randn(3, 100).double(), torch.empty(3).double()
    return attempt(kernel, 3, x, out, 100, B=B, expected={"out": x.sum(-1)})


def online(kernel: Any) -> Figure:
    """Means of 100 values under the softmax of three rows of large scores, an instance each: chapter 17."""
    scores, value = 1000 * torch.randn(3, 100).double(), torch.randn(100).double()
    scores[1] -= 10_000  # all are negative: a masked score of zero would be the largest
    given = scores, value, torch.empty(3).double(), 100
    return attempt(kernel, 3, *given, B=B, expected={"out": scores.softmax(-1) @ value})


def norms(kernel: Any) -> Figure:
    """Squared norms of 37 rows of 21 features: chapter 17."""
    x, out = torch.randn(37, 21).double(), torch.empty(37).double()
    large = _half(), torch.ones(1024), 1024, 64
    then = partial(compiled, kernel, *large, grid=8, tile=(128, 64), B=128, D=64)
    return attempt(kernel, 3, x, out, 37, 21, B=B, D=32, expected={"out": x.square().sum(-1)}, then=then)


def sums(kernel: Any) -> Figure:
    """Sums of values with Gaussian weights that are not normalized, at scale 1/4: chapter 17."""
    q, k, v = torch.randn(3, 48, 16, dtype=torch.float64)
    kappa = (-0.125 * (q[:, None] - k).square().sum(-1)).exp()
    given = q, k, v, k.square().sum(-1) / 2, torch.empty_like(q), _scale(0.25), 48
    large = _half(), _half(), _half(), torch.ones(1024), _half(), torch.ones(1), 1024
    then = partial(compiled, kernel, *large, grid=8, warps=8, B=128, D=64)
    return attempt(kernel, 3, *given, B=B, D=16, expected={"out": kappa @ v}, then=then)


def three(queries: Any, keys: Any, *, causal: bool) -> list[Compiled]:
    """Run chapter 18's kernels for three tensors in float64, then compile them in bfloat16, at scale 1/8.

    Args:
        queries: the kernel that owns queries.
        keys: the kernel that owns keys.
        causal: whether a query sees only itself and what is before it.

    Returns:
        What came of either kernel.

    Raises:
        ValueError: if a gradient differs from autograd's by more than 1e-13.
    """
    for given in (torch.randn(4, 48, 16).double(), torch.randn(4, 1024, 64).bfloat16()):
        exact = three_tensors(*given, scale=0.125, causal=causal)
        inputs = *given, *exact[:3], torch.full((1,), 0.125).to(exact.half.dtype)
        found = [
            _gradients(queries, inputs, {"grad_query": exact.query}, causal),
            _gradients(keys, inputs, {"grad_key": exact.key, "grad_value": exact.value}, causal),
        ]
    return found


def one(kernel: Any, x: Tensor, grad: Tensor, *, sigma: float, causal: bool) -> Compiled:
    """Run chapter 18's kernel for one tensor on tokens in float64, then compile it in bfloat16.

    Args:
        kernel: the one that owns tokens.
        x, grad: tokens of one head and the gradient of their outputs, ``[n 16]`` with n a multiple of 16.
        sigma: the bandwidth.
        causal: whether a token sees only itself and what is before it.

    Raises:
        ValueError: if the gradient differs from autograd's by more than 1e-13.
    """
    for given in ((x, grad), torch.randn(2, 1024, 64).bfloat16()):
        exact = one_tensor(*given, sigma=sigma, causal=causal)
        inputs = given[0], *exact[:3], torch.full((1,), sigma**-2, dtype=exact.norm.dtype)
        found = _gradients(kernel, inputs, {"grad": exact.x}, causal)
    return found


def _gradients(kernel: Any, inputs: tuple, expected: dict[str, Tensor], causal: bool) -> Any:
    """Judge a kernel of chapter 18: it is run where its inputs are in float64, else compiled."""
    n, outs = len(inputs[0]), [torch.full_like(inputs[0], torch.nan) for _ in expected]
    if inputs[0].dtype != torch.float64:
        how: dict[str, Any] = {"grid": n // 64, "tile": (64, 64), "expected": expected}
        return compiled(kernel, *inputs, *outs, n, CAUSAL=causal, B=64, D=64, **how)
    kernel[(n // B,)](*inputs, *outs, n, CAUSAL=causal, B=B, D=B)
    for name, out in zip(expected, outs, strict=True):
        if not (error := (out - expected[name]).abs().max()) <= 1e-13:
            raise ValueError(f"{name} differs from autograd's by {error:.0e}")
    return None


def order(kernel: Any) -> Figure:
    """The gradients of three tensors, that of the queries in a part for each block of keys: chapter 18."""
    q, k, v, grad = torch.randn(4, 32, B, dtype=torch.float64)
    exact = three_tensors(q, k, v, grad, scale=0.125, causal=False)
    slope = (0.125 * (q @ k.mT - exact.half)).softmax(-1) * (grad @ v.mT - exact.delta[:, None])
    blocks = zip(slope.split(B, 1), k.split(B), strict=True)
    right = {"parts": torch.stack([0.125 * s @ own for s, own in blocks])}
    right |= {"grad_key": exact.key, "grad_value": exact.value}
    outs = (torch.empty_like(each) for each in right.values())
    given = q, k, v, grad, *exact[:3], _scale(0.125), *outs, len(q)
    terms, parts = torch.ones(3, 1024), torch.empty(16, 1024, 64)
    large = *(_half() for _ in "qkvo"), *terms, torch.ones(1), parts, _half(), _half(), 1024
    then = partial(compiled, kernel, *large, grid=16, tile=(64, 64), B=64, D=64)
    return attempt(kernel, len(q) // B, *given, B=B, D=B, expected=right, then=then)


def coefficients(kernel: Any) -> Figure:
    """The gradients of the coefficients of three harmonics, for 32 keys and 16 sums: chapter 19."""
    q, k, grad = torch.randn(3, 32, 16).double()
    angles = torch.arange(1, 4)[:, None, None] * (0.25 * k @ q.T)
    right = torch.cat([angles.cos() @ grad, angles.sin() @ grad])
    given = q, k, grad, torch.empty_like(right), _scale(0.25), 32
    large = _half(), _half(), _half(1024, 16), torch.zeros(6, 1024, 16), torch.full((1,), 0.25), 1024
    then = partial(compiled, kernel, *large, FAST=True, G=3, R=16, B=64, D=64, tile=(64, 64))
    sizes = {"FAST": False, "G": 3, "R": 16, "B": B, "D": 16}
    return attempt(kernel, 6, *given, **sizes, expected={"grad_coefficients": right}, then=then)


def merging(merge: Callable[[Part, Part], Part], empty: Part) -> None:
    """Parts of a softmax over 40 scores, merged in three divisions; says whether all are right: chapter 20.

    Args:
        merge: the reader's; of two pairs (logarithm of the sum, output ``[16]``) it makes one.
        empty: the pair of no keys.
    """
    score, value = 50 * torch.randn(40).double(), torch.randn(40, 16).double()
    exact, wrong = torch.softmax(score, 0) @ value, 0
    for pieces in ([40], [1] * 40, [7, 20, 13]):
        parts = zip(score.split(pieces), value.split(pieces), strict=True)
        pairs = [(s.logsumexp(0), s.softmax(0) @ v) for s, v in parts]
        _, out = reduce(merge, [empty, empty, *pairs, empty])
        wrong += not torch.allclose(out, exact)
    print("right" if wrong == 0 else f"{wrong} of 3 divisions are wrong")


def ragged(kernel: Any) -> Figure:
    """A decoding step of four sequences of one tensor, at scale 1/4 in a window of 20 keys: chapter 20."""
    tokens, lengths = torch.randn(4, 48, 16).double(), torch.tensor([3, 17, 30, 45])
    query, exact = tokens[torch.arange(4), lengths - 1], torch.empty(4, 16).double()
    cache = torch.full_like(tokens, torch.nan)
    for b, t in enumerate(lengths.tolist()):
        row = tokens[b, max(0, t - 20) : t]
        cache[b, max(0, t - 20) : t] = row
        exact[b] = (-0.125 * (query[b] - row).square().sum(-1)).softmax(0) @ row
    given = query, cache, _scale(0.25), lengths, torch.empty_like(query), 48, 20
    own = _half(4, 128), _half(4, 2048, 128), torch.full((1,), 1 / 128), torch.full((4,), 2048)
    large = *own, _half(4, 128), 2048, 512
    then = partial(compiled, kernel, *large, C=32, D=128, tile=(1, 32), stages=4)
    return attempt(kernel, 4, *given, C=B, D=16, expected={"out": exact}, then=then)
