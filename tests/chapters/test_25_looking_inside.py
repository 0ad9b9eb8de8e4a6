"""The statements of chapter 25, checked."""

from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

import gkalib
from gkalib import capture_attention
from gkalib.analysis import discarded, entropy, neighbors, received, rollout
from gkalib.layers import attention
from gkalib.smoothing import compute_weights


def rows(*shape, sharpness=1.0, seed=0):
    """Random weights whose rows sum to one."""
    generator = torch.Generator().manual_seed(seed)
    return (sharpness * torch.randn(*shape, generator=generator, dtype=torch.float64)).softmax(-1)


def tokens(n=12, dim=16):
    return torch.randn(2, n, dim, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def gka(sigma, **options):
    return attention("gka", sigma=sigma, **options)(16, 2, dtype=torch.float64)


@pytest.mark.parametrize("sharpness", [0.1, 1.0, 5.0])
def test_entropy_counts_at_least_as_many_neighbors_and_both_lie_between_one_and_all(sharpness):
    weights = rows(3, 2, 9, 7, sharpness=sharpness)
    few, many = neighbors(weights), entropy(weights).exp()
    assert (few >= 1).all() and (few <= many).all() and (many <= 7 + 1e-12).all()


@pytest.mark.parametrize("support", [1, 4, 7])
def test_both_counts_are_the_number_of_equal_weights(support):
    weights = torch.zeros(1, 7, dtype=torch.float64)
    weights[0, :support] = 1 / support
    assert neighbors(weights).item() == pytest.approx(support)
    assert entropy(weights).exp().item() == pytest.approx(support)


@pytest.mark.parametrize("sigma", [0.3, 1.0, 2.0, 30.0])
@pytest.mark.parametrize("n", [2, 12, 60])
def test_no_key_of_gka_receives_more_than_the_root_of_the_trace(sigma, n):
    weights = compute_weights(gka(sigma).problem(tokens(n)))
    trace = weights.diagonal(dim1=-2, dim2=-1).sum(-1)
    assert (received(weights).amax(-1) <= trace.sqrt() + 1e-12).all()
    assert (trace <= n + 1e-12).all()


@pytest.mark.parametrize("n", [16, 100])
def test_a_star_comes_within_a_factor_of_two_of_the_most_a_key_can_receive(n):
    side = (np.log(n)) ** 0.5  # at σ = 1: exp(-side²/2) = 1/√n
    x = torch.cat([torch.zeros(1, n), side * torch.eye(n)])[None].double()
    layer = attention("gka", sigma=1.0)(n, 1, dtype=torch.float64)
    assert received(compute_weights(layer.problem(x))).max() > 0.45 * n**0.5


def test_rollout_is_the_mean_over_who_stays_and_who_steps():
    weights, residual = [rows(2, 3, 5, 5, seed=seed) for seed in range(4)], 0.3
    expected = torch.zeros(2, 5, 5, dtype=torch.float64)
    for steps in product((False, True), repeat=4):
        path = torch.eye(5, dtype=torch.float64).expand(2, -1, -1)
        for layer, taken in zip(weights, steps, strict=True):
            path = layer.mean(1) @ path if taken else path
        expected = expected + 0.7 ** sum(steps) * 0.3 ** (4 - sum(steps)) * path
    torch.testing.assert_close(rollout(weights, residual=residual), expected)


class Bare(nn.Module):
    """Attention and a residual connection, and nothing else: no values, no MLP, no norm."""

    def __init__(self, attentions, residual):
        super().__init__()
        self.attentions, self.residual = attentions, residual

    def forward(self, x):
        for mean in self.attentions:
            x = self.residual * x + (1 - self.residual) * mean @ x
        return x


def test_rollout_is_the_jacobian_of_a_network_that_does_nothing_else():
    weights = [rows(1, 3, 5, 5, seed=seed) for seed in range(3)]
    bare = Bare([layer[0].mean(0) for layer in weights], 0.5)
    jacobian = torch.func.jacrev(bare)(tokens(n=5, dim=3)[0])  # [n d n d]
    flow = rollout(weights)[0]
    for channel in range(3):
        torch.testing.assert_close(jacobian[:, channel, :, channel], flow)
        assert jacobian[:, channel, :, (channel + 1) % 3].abs().max() == 0
    backward = rollout(weights[::-1])[0]  # the layers in the other order are another network
    assert (backward - flow).abs().max() > 1e-3


@pytest.mark.parametrize("size", [1e-1, 1e-4])
def test_what_a_quantile_leaves_does_not_depend_on_how_small_the_differences_are(size):
    noise = torch.randn(4, 10, 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kept = discarded((size * noise).softmax(-1), 0.9, per="row")
    assert torch.equal(kept > 0, noise == noise.amax(-1, keepdim=True))
    each = discarded((size * noise).softmax(-1), 0.5, per="row")
    assert neighbors(each).min() > 5 - 0.1 and neighbors(each).max() <= 5 + 1e-9


def test_rows_of_karat_are_refused_by_rollout_and_their_sums_are_free():
    torch.manual_seed(0)
    model = gkalib.vit(
        "tiny", attention=attention("karat", rank=4), image_size=8, patch_size=2, channels=1, dim=16,
        num_heads=2, depth=2, num_classes=3,
    )  # fmt: skip
    found = [layer.weights for layer in capture_attention(model, torch.randn(2, 1, 8, 8))]
    with pytest.raises(ValueError, match="negative weights"):
        rollout(found)
    assert (found[0].sum(-1) - 1).abs().max() > 0.1


def test_two_recipes_differ_in_a_constant_of_adam_and_in_the_shapes_of_crops():
    arms = {
        name: gkalib.results.load("looking", arm=name)[0].recipe["run"]
        for name in ("karat-cifar10-tiny-softmax", "gka-imagenet-tiny-deit", "gka-imagenet-tiny-gka")
    }
    softmax, deit, gka_run = arms.values()
    apart = {key for key in softmax if key != "augment" and softmax[key] != deit[key]}
    apart |= {key for key, one in softmax["augment"].items() if one != deit["augment"][key]}
    assert apart == {"eps", "ratio"}
    assert {key for key in deit if deit[key] != gka_run[key]} == {"attention"}
