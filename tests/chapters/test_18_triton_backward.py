"""Chapter 18: the gradient of Gaussian attention, its symmetries, and what a program of it costs."""

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

from chapters.lab.watch import products
from gkalib.smoothing.fused.backward import (
    smooth_backward,
    smooth_backward_key_kernel,
    smooth_backward_query_kernel,
)
from gkalib.smoothing.fused.configs import Config, forced
from gkalib.smoothing.fused.forward import smooth_forward
from gkalib.smoothing.fused.symmetric import gka_backward, gka_backward_kernel
from gkalib.smoothing.spans import Spans
from tests.smoothing.fused.formula import of_itself
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
    """E, g and the slopes m_ij E_ij (g_i·x_j − D_i)."""
    e = affinities(x)
    total = (e * mask).sum(-1, keepdim=True)
    g = grad / total
    delta = (g * ((e * mask) @ x / total)).sum(-1, keepdim=True)
    return e, g, e * mask * (g @ x.mT - delta)


@pytest.mark.parametrize("mask", MASKS)
def test_the_slope_of_a_score(mask):
    """dS_ij = w_ij (<dO_i, v_j> − δ_i), with δ_i = <dO_i, O_i>; each row sums to zero."""
    query, key, value, grad = (tokens() for _ in range(4))
    hidden = MASKS[mask]() == 0
    scores = (-torch.cdist(query, key).square() / (2 * SIGMA**2)).requires_grad_()
    weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    out = weights @ value
    (exact,) = torch.autograd.grad(out, scores, grad, retain_graph=True)
    slope = (weights * (grad @ value.mT - (grad * out).sum(-1, keepdim=True))).detach()
    oracle(slope, exact)
    assert slope.sum(-1).abs().max() < 1e-13 < slope.sum(-2).abs().max()


@pytest.mark.parametrize("mask", MASKS)
def test_forces_are_symmetric_and_give_the_gradient(mask):
    x, allowed, grad = tokens().requires_grad_(), MASKS[mask](), tokens()
    (exact,) = torch.autograd.grad(attend(x, allowed), x, grad)
    e, g, slope = parts(x.detach(), allowed, grad)
    force = slope + slope.mT
    by_force = (force @ x - force.sum(-1, keepdim=True) * x).detach() / SIGMA**2
    oracle((e * allowed).mT @ g + by_force, exact)


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
def test_gradients_of_three_tensors(softmax):
    """dq, dk with a sum over its column, dv, and σ dL/dσ = −Σ <q, dq> − Σ <k, dk>, normalized or not."""
    query, key, value = (tokens()[None, None].requires_grad_() for _ in range(3))
    sigma = torch.tensor([SIGMA], dtype=torch.float64, requires_grad=True)
    scores = -(query[..., None, :] - key[..., None, :, :]).square().sum(-1) / (2 * sigma**2)
    weights = scores.softmax(-1) if softmax else scores.exp()
    grad = tokens()[None, None]
    leaves = (scores, query, key, value, sigma)
    slope, *exact = torch.autograd.grad((weights @ value * grad).sum(), leaves)
    given = [each.detach() for each in (query, key, value)]
    rows, columns = slope.sum(-1)[..., None], slope.sum(-2)[..., None]
    by_hand = [slope @ given[1] - rows * given[0], slope.mT @ given[0] - columns * given[1]]
    by_hand = [*(each / SIGMA**2 for each in by_hand), (weights.mT @ grad).detach()]
    euler = -(given[0] * by_hand[0]).sum() - (given[1] * by_hand[1]).sum()
    oracle(euler[None], SIGMA * exact[3])
    scale, spans = torch.tensor([SIGMA**-2], dtype=torch.float64), Spans(N, N)
    out, log_sum = smooth_forward(*given, scale, scale, None, spans, softmax)
    found = smooth_backward(
        grad, *given, out, log_sum, scale, scale, None, spans, softmax, False, want_numbers=True
    )
    for mine, fused, wanted in zip(by_hand, found[:3], exact[:3], strict=True):
        oracle(mine, wanted)
        oracle(fused, wanted)
    oracle(found[4][..., N:], (-columns[..., 0] * given[1].square().sum(-1) / 2))
    oracle(-2 * scale * (found[3].sum() + found[4].sum()), SIGMA * exact[3])


@FLOAT64
def test_products_of_a_pass():
    """Five a block without a mask; three for each block that is seen and four for each that sees with one."""
    blocks = 3
    x, grad = (torch.randn(1, 1, 16 * blocks, 16, dtype=torch.float64) for _ in range(2))
    sigma = torch.tensor([3.0], dtype=torch.float64)
    for spans, expected in (
        (Spans(99, 99), 5 * blocks**2),
        (Spans(99, 0), sum(3 * (i + 1) + 4 * (blocks - i) for i in range(blocks))),
        (Spans(15, 15), 5 * 7),
        (Spans(31, 0), 7 * 6),
    ):
        out, total = of_itself(x, sigma, spans)
        with forced(Config(16, 16)), products() as found:
            gka_backward(grad, x, out, total, sigma, spans)
        assert len(found) == expected


def test_the_chapter_names_every_argument_of_the_librarys_kernels():
    text = (Path(__file__).parents[2] / "chapters/text/18-triton-backward.md").read_text()
    table = text[text.index("| for | here | one tensor") :].split("\n\n")[0]
    cells = [line.split("|") for line in table.splitlines() if line.startswith("|")]
    one, three = ({name for line in cells for name in re.findall(r"`(\w+)`", line[at])} for at in (3, 4))
    assert set(gka_backward_kernel.arg_names) <= one
    kernels = smooth_backward_query_kernel, smooth_backward_key_kernel
    assert {name for kernel in kernels for name in kernel.arg_names} <= three
