"""The statements of chapter 25, checked."""

from itertools import product

import pytest
import torch
from torch import nn

from gkalib.analysis import entropy, neighbors, received, rollout
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


@pytest.mark.parametrize("sigma", [0.3, 1.0, 2.0, 30.0])
@pytest.mark.parametrize("n", [2, 12, 60])
def test_no_key_of_gka_receives_more_than_the_root_of_the_trace(sigma, n):
    weights = compute_weights(gka(sigma).problem(tokens(n)))
    trace = weights.diagonal(dim1=-2, dim2=-1).sum(-1)
    assert (received(weights).amax(-1) <= trace.sqrt() + 1e-12).all()
    assert (trace <= n + 1e-12).all()


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
