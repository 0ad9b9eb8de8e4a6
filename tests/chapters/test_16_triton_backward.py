"""Chapter 16: the gradient of Gaussian attention, its symmetries, and what a program of it costs."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

import gkalib
from gkalib import masks
from gkalib.kernels import Gaussian
from gkalib.smoothing.fused.backward import smooth_backward
from gkalib.smoothing.fused.configs import Config, forced
from gkalib.smoothing.fused.forward import smooth_forward
from gkalib.smoothing.fused.symmetric import gka_backward, gka_forward
from gkalib.smoothing.spans import Spans
from tests.tolerance import oracle

N, D, SIGMA = 40, 6, 1.7
FLOAT64 = pytest.mark.skipif(torch.cuda.is_available(), reason="float64 is the interpreter's oracle")
MASKS = {
    "none": lambda: torch.ones(N, N, dtype=torch.float64),
    "causal": lambda: torch.ones(N, N, dtype=torch.float64).tril(),
    "window": lambda: torch.ones(N, N, dtype=torch.float64).tril(3).triu(-9),
}


def tokens(length: int = N, width: int = D) -> Tensor:
    return torch.randn(length, width, dtype=torch.float64)


def affinities(x: Tensor, sigma: float | Tensor = SIGMA) -> Tensor:
    return (-(x[:, None] - x).square().sum(-1) / (2 * sigma**2)).exp()


def attend(x: Tensor, mask: Tensor, sigma: float | Tensor = SIGMA, eps: float = 0.0) -> Tensor:
    seen = affinities(x, sigma) * mask
    return seen @ x / (seen.sum(-1, keepdim=True) + eps)


def parts(x: Tensor, mask: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """E, g and the slopes m_ij (g_i·x_j − D_i)."""
    e = affinities(x)
    total = (e * mask).sum(-1, keepdim=True)
    g = grad / total
    delta = (g * ((e * mask) @ x / total)).sum(-1, keepdim=True)
    return e, g, mask * (g @ x.mT - delta)


@pytest.mark.parametrize("mask", MASKS)
def test_the_slope_of_an_affinity(mask):
    x, allowed, grad = tokens(), MASKS[mask](), tokens()
    e = affinities(x).requires_grad_()
    seen = e * allowed
    (slope,) = torch.autograd.grad(seen @ x / seen.sum(-1, keepdim=True), e, grad)
    oracle(parts(x, allowed, grad)[2], slope)


@pytest.mark.parametrize("mask", MASKS)
def test_forces_are_symmetric_and_give_the_gradient(mask):
    x, allowed, grad = tokens().requires_grad_(), MASKS[mask](), tokens()
    (exact,) = torch.autograd.grad(attend(x, allowed), x, grad)
    e, g, slope = parts(x.detach(), allowed, grad)
    w = e * (slope + slope.mT)
    assert torch.equal(w, w.mT)
    oracle((e * allowed).mT @ g + (w @ x - w.sum(-1, keepdim=True) * x).detach() / SIGMA**2, exact)


@pytest.mark.parametrize("mask", MASKS)
def test_a_gradient_keeps_what_moving_turning_and_scaling_keep(mask):
    """Sums of dx are sums of dO; x dxᵀ − O dOᵀ is symmetric; its trace is −σ dL/dσ, whatever ε is."""
    x, sigma = tokens().requires_grad_(), torch.tensor(SIGMA, dtype=torch.float64, requires_grad=True)
    allowed, grad = MASKS[mask](), tokens()
    for eps in (0.0, 0.3):
        out = attend(x, allowed, sigma, eps)
        grad_x, grad_sigma = torch.autograd.grad(out, (x, sigma), grad)
        torque = (x.mT @ grad_x - out.mT @ grad).detach()
        oracle(torque, torque.mT)
        oracle(-torque.trace(), (sigma * grad_sigma).detach())
        if eps == 0:
            oracle(grad_x.sum(0), grad.sum(0))


def test_two_products_with_an_inner_width_of_d_are_one_of_twice_that():
    x, g = tokens(), tokens()
    oracle(torch.cat([g, x], -1) @ torch.cat([x, g], -1).mT, g @ x.mT + x @ g.mT)


def test_rounded_slopes_still_sum_to_zero():
    """With D from the rounded g, a row's slopes, each by its affinity, cancel as those of the exact g do."""
    x, grad = tokens(), tokens()
    e = affinities(x)
    out = e @ x / e.sum(-1, keepdim=True)
    g = grad / e.sum(-1, keepdim=True)
    rounded = g.half().double()
    sums = {}
    for name, source in (("rounded", rounded), ("exact", g)):
        slope = rounded @ x.mT - (source * out).sum(-1, keepdim=True)
        sums[name] = (e * slope).sum(-1).abs().max().item()
    assert sums["rounded"] < 1e-13 < 1e-6 < sums["exact"]


@FLOAT64
@pytest.mark.parametrize("softmax", [True, False])
def test_a_key_in_a_norm_gets_a_sum_over_its_column(softmax):
    """RBF: dk_j = 2γ (Σ_i dS_ij q_i − k_j Σ_i dS_ij), and γ's gradient by Euler's identity, both forms."""
    query, key, value = (tokens()[None, None].requires_grad_() for _ in range(3))
    gamma = torch.tensor([0.4], dtype=torch.float64, requires_grad=True)
    score = 2 * gamma * query @ key.mT - gamma * key.square().sum(-1)[..., None, :]
    if not softmax:
        score = score - gamma * query.square().sum(-1, keepdim=True)
    score.retain_grad()
    weights = score.softmax(-1) if softmax else score.exp()
    grad = tokens()[None, None]
    (weights @ value * grad).sum().backward()
    assert (
        score.grad is not None and query.grad is not None and key.grad is not None and gamma.grad is not None
    )
    columns = score.grad.sum(-2)
    by_hand = 2 * gamma * (score.grad.mT @ query - key * columns[..., None])
    oracle(by_hand.detach(), key.grad)
    euler = ((query * query.grad).sum() + (key * key.grad).sum()).detach() / 2
    oracle(euler, (gamma * gamma.grad).sum().detach())
    given = [each.detach() for each in (query, key, value)]
    scale, spans = 2 * gamma.detach(), Spans(N, N)
    out, log_sum = smooth_forward(*given, scale, scale, None, spans, softmax)
    slots = (scale, scale, None, spans, softmax, False)
    _, grad_key, _, of_scale, of_norm, _ = smooth_backward(
        grad, *given, out, log_sum, *slots, want_numbers=True
    )
    oracle(of_norm[..., N:], -columns * given[1].square().sum(-1) / 2)
    oracle(2 * (of_scale.sum() + of_norm.sum())[None], gamma.grad)
    oracle(grad_key, key.grad)


@contextmanager
def products() -> Iterator[Counter]:
    """Count the interpreter's matrix products."""
    from triton.runtime.interpreter import interpreter_builder as builder

    found, own = Counter(), builder.create_dot

    def counted(*given):
        found["products"] += 1
        return own(*given)

    builder.create_dot = counted
    try:
        yield found
    finally:
        builder.create_dot = own


@FLOAT64
def test_products_of_a_pass():
    """Five a block without a mask; three for each block that is seen and four for each that sees with one."""
    blocks = 3
    x, grad = (torch.randn(1, 1, 16 * blocks, 16, dtype=torch.float64) for _ in range(2))
    sigma = torch.tensor([3.0], dtype=torch.float64)
    for spans, expected in (
        (Spans(99, 99), 5 * blocks**2),
        (Spans(99, 0), sum(3 * (i + 1) + 4 * (blocks - i) for i in range(blocks))),
    ):
        out, total = gka_forward(x, sigma, spans, 0.0)
        with forced(Config(16, 16)), products() as found:
            gka_backward(grad, x, out, total, sigma, spans)
        assert found["products"] == expected


@FLOAT64
def test_all_of_it_through_smooth():
    """The gradients that a user gets, σ's too, are the reference's."""
    found = []
    for method in ("fused", "reference"):
        torch.manual_seed(1)
        x = tokens()[None, None].requires_grad_()
        sigma = torch.tensor([SIGMA], dtype=torch.float64, requires_grad=True)
        out = gkalib.smooth(x, x, x, Gaussian(sigma), mask=masks.Causal(), method=method)
        found.append(torch.autograd.grad(out.square().sum(), (x, sigma)))
    for actual, exact in zip(*found, strict=True):
        oracle(actual, exact)
