"""What the kernels of chapter 18 should compute: gradients by autograd in float64, from the definition.

The terms that a kernel is given have the type of its sums, float32 unless the tensors are in float64.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Float64
from torch import Tensor

LOG2_E = math.log2(math.e)
Rows = Float64[Tensor, "n d"]
Terms = Float[Tensor, " n"]


class ThreeTensors(NamedTuple):
    """The gradients of queries, keys and values, and what the kernels for them are given.

    Args:
        half: half the squared norm of each key.
        log_sum: the logarithm to base 2 of each row's sum of exponentials.
        delta: of each row, the inner product of the output and its gradient.
        query, key, value: the gradients.
    """

    half: Terms
    log_sum: Terms
    delta: Terms
    query: Rows
    key: Rows
    value: Rows


class OneTensor(NamedTuple):
    """The gradients of a tensor that is query, key and value, and what the kernel for it is given.

    Args:
        g: the gradient of the output over the row's sum, in its own type.
        norm: half the squared norm of each token over σ², to base 2.
        delta: of each row, the inner product of g and the output.
        out: the output.
        x, sigma: the gradients.
    """

    g: Tensor
    norm: Terms
    delta: Terms
    out: Rows
    x: Rows
    sigma: Tensor


def three_tensors(
    q: Tensor, k: Tensor, v: Tensor, grad: Tensor, *, scale: float, causal: bool
) -> ThreeTensors:
    r"""Gradients of Gaussian attention, $w_{ij} \propto \exp(-\text{scale}\, \|q_i - k_j\|^2/2)$.

    Args:
        q, k, v: of one head, ``[n d]``, in any type.
        grad: of the output, ``[n d]``.
        scale: 1/σ².
        causal: whether a query sees only itself and what is before it.

    Raises:
        ValueError: if the shapes differ.

    References:
        Chapter 18, whose kernels are compared with it.
    """
    _same(q, k, v, grad)
    sums = torch.promote_types(q.dtype, torch.float32)
    q, k, v = (one.detach().double().requires_grad_() for one in (q, k, v))
    half = k.square().sum(-1) / 2
    scores = scale * (q @ k.mT - half)
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)
    out = scores.softmax(-1) @ v
    gradients = torch.autograd.grad(out, (q, k, v), grad.double())
    terms = half, scores.logsumexp(-1) * LOG2_E, (grad.double() * out).sum(-1)
    return ThreeTensors(*(one.detach().to(sums) for one in terms), *gradients)


def one_tensor(x: Tensor, grad: Tensor, *, sigma: float, causal: bool) -> OneTensor:
    """Gradients of Gaussian kernel attention, where one tensor is query, key and value.

    Args:
        x: tokens of one head, ``[n d]``, in any type.
        grad: of the output, ``[n d]``.
        sigma: the bandwidth.
        causal: whether a token sees only itself and what is before it.

    Raises:
        ValueError: if the shapes differ.

    References:
        Chapter 18, whose kernel is compared with it.
    """
    _same(x, grad)
    sums = torch.promote_types(x.dtype, torch.float32)
    x = x.detach().double().requires_grad_()
    width = torch.tensor(sigma, dtype=torch.float64, requires_grad=True)
    half = x.square().sum(-1) / 2
    e = ((x @ x.mT - half - half[:, None]) / width**2).exp()
    e = e.tril() if causal else e
    total = e.sum(-1, keepdim=True)
    out = e @ x / total
    of_x, of_sigma = torch.autograd.grad(out, (x, width), grad.double())
    g = (grad / total).to(grad.dtype)
    terms = LOG2_E * half / width**2, (g * out).sum(-1)
    norm, delta = (one.detach().to(sums) for one in terms)
    return OneTensor(g.detach(), norm, delta, out.detach(), of_x, of_sigma)


def forces(x: Tensor, grad: Tensor, *, sigma: float, causal: bool) -> Tensor:
    r"""The slopes of each pair of tokens in both of their roles, ``[n n]`` in float64, symmetric.

    $$F_{ij} = dS_{ij} + dS_{ji}, \qquad
    dx_i = \sum_j w_{ji}\, dO_j + \sum_j \frac{F_{ij}}{\sigma^2} (x_j - x_i)$$

    The diagonal, which moves nothing, is zero.

    Args:
        x, grad, sigma, causal: as in ``one_tensor``.

    Raises:
        ValueError: if the shapes differ.

    References:
        Chapter 18 draws them.
    """
    _same(x, grad)
    x, grad = x.double(), grad.double()
    scores = -torch.cdist(x, x).square() / (2 * sigma**2)
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)
    w = scores.softmax(-1)
    slope = w * (grad @ x.mT - (grad * (w @ x)).sum(-1, keepdim=True))
    return (slope + slope.mT).fill_diagonal_(0)


def _same(*tensors: Tensor) -> None:
    shapes = [list(one.shape) for one in tensors]
    if any(shape != shapes[0] for shape in shapes) or len(shapes[0]) != 2:
        raise ValueError(f"gradients: all tensors are [n d] of one size, not {shapes}")
