"""What chapter 26 proves: rescaled models, walks as chains, minima of noise, sorted weights."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from chapters.experiments.sharpness import sharpness
from chapters.experiments.walks import random_plane, walk_shares
from gkalib.analysis.landscape import Surface, loss_on, snapshot
from gkalib.layers import attention
from tests.tolerance import equal, oracle

F64 = torch.float64
HEADS, WIDTH = 2, 3


def _layer(name: str = "softmax") -> nn.Module:
    """An attention layer with biases, in evaluation mode."""
    options = {"length": 5, "rank": 2} if name == "karat" else {}
    layer = attention(name, **options)(HEADS * WIDTH, HEADS, qkv_bias=True, dtype=F64)
    with torch.no_grad():
        for one in layer.parameters():
            one.add_(torch.randn_like(one) / 3)
    return layer.eval()


@torch.no_grad()
def _rescale(layer: nn.Module, alpha: float, heads: int) -> None:
    part = slice(0, heads * WIDTH)
    layer.value.weight[part] *= alpha  # pyright: ignore
    layer.value.bias[part] *= alpha  # pyright: ignore
    layer.proj.weight[:, part] /= alpha  # pyright: ignore


@pytest.mark.parametrize("name", ["softmax", "karat", "rbf"])
@pytest.mark.parametrize("heads", [1, 2])
def test_a_rescaled_layer_gives_the_same_output(name: str, heads: int):
    layer, x = _layer(name), torch.randn(4, 5, HEADS * WIDTH, dtype=F64)
    before = layer(x)
    _rescale(layer, 7.0, heads)
    equal(layer(x), before)


def test_a_filter_plane_follows_a_layer_and_not_a_head():
    layer, x = _layer(), torch.randn(4, 5, HEADS * WIDTH, dtype=F64)

    def surface(scale: str) -> Tensor:
        plane = random_plane(snapshot(layer), seed=0, scale=scale)
        return loss_on(plane, layer, lambda one: one(x).square().mean(), points=5, span=1.0).losses

    before = {scale: surface(scale) for scale in ("filter", "unit")}
    _rescale(layer, 5.0, HEADS)
    equal(surface("filter"), before["filter"])
    assert (surface("unit") / before["unit"]).log().abs().max() > 0.1
    _rescale(layer, 5.0, 1)
    assert (surface("filter") / before["filter"]).log().abs().max() > 0.1


def test_the_hessian_of_a_rescaled_model():
    """H(Sθ) = S⁻¹ H(θ) S⁻¹, and T H T stays, entry by entry."""
    layer, x = _layer(), torch.randn(2, 3, HEADS * WIDTH, dtype=F64)
    layer.method = "reference"  # pyright: ignore
    chosen = ("value.weight", "value.bias", "proj.weight")

    def hessian() -> tuple[Tensor, Tensor]:
        own = dict(layer.named_parameters())
        shapes = [own[name].shape for name in chosen]
        row = torch.cat([own[name].detach().flatten() for name in chosen])

        def loss(row: Tensor) -> Tensor:
            parts = row.split([shape.numel() for shape in shapes])
            given = {n: p.reshape(s) for n, p, s in zip(chosen, parts, shapes, strict=True)}
            return functional_call(layer, given, (x,)).pow(3).mean()

        return torch.autograd.functional.hessian(loss, row), row

    before, row = hessian()
    _rescale(layer, 4.0, 1)
    after, moved = hessian()
    scale = moved / row
    equal(after, before / scale / scale[:, None])
    equal(after * moved.abs() * moved.abs()[:, None], before * row.abs() * row.abs()[:, None])
    assert torch.linalg.eigvalsh(after)[-1] > 2 * torch.linalg.eigvalsh(before)[-1]
    for name, one in layer.named_parameters():
        one.requires_grad_(name in chosen)
    found = sharpness(layer, lambda one: one(x).pow(3).mean(), steps=len(row), tolerance=1e-9)
    assert found.largest == pytest.approx(float(torch.linalg.eigvalsh(after)[-1]), rel=1e-6)


def test_centered_walks_have_the_inverse_of_a_chain():
    """J Θ Θᵀ J = D⁺ E Eᵀ D⁺ᵀ for any steps, and for orthogonal ones the chain's inverse, with cosines."""
    n = 12
    center = torch.eye(n, dtype=F64) - 1 / n
    difference = torch.eye(n, dtype=F64).diff(dim=0)
    inverse = torch.linalg.pinv(difference)
    oracle(inverse @ difference, center)
    path = torch.randn(n, 40, dtype=F64)
    steps = difference @ path
    oracle(center @ path @ path.T @ center, inverse @ steps @ steps.T @ inverse.T)
    lengths = torch.rand(n - 1, dtype=F64) + 0.5
    shares = torch.linalg.eigvalsh(inverse @ torch.diag(lengths.square()) @ inverse.T).flip(0)[:-1]
    oracle(walk_shares(lengths), shares / shares.sum())
    chain = torch.linalg.pinv(difference.T @ difference)
    oracle(inverse @ inverse.T, chain)
    k, t = torch.arange(1, n).double(), torch.arange(n).double()
    cosines = torch.cos(math.pi * k * (t[:, None] + 0.5) / n)
    values = 1 / (4 * torch.sin(math.pi * k / (2 * n)) ** 2)
    oracle(chain @ cosines, cosines * values)
    oracle(values.sum(), torch.tensor((n**2 - 1) / 6, dtype=F64))


def test_one_point_in_nine_of_noise_is_a_minimum():
    ticks = torch.arange(302.0)
    found = Surface(ticks, ticks, torch.rand(302, 302)).minima() / 300**2
    assert found == pytest.approx(1 / 9, abs=0.004)
