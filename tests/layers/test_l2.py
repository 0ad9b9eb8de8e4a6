"""L2 attention: its formula, and a bound on its Jacobian that holds, with the power that it needs."""

import math

import pytest
import torch
from scipy.special import lambertw

from gkalib.layers import attention
from gkalib.layers.l2 import inverse_phi, lipschitz_bound


def _layer(dim: int = 8, heads: int = 2, **options) -> torch.nn.Module:
    return attention("l2", **options)(dim, heads).double()


def _largest(layer: torch.nn.Module, x: torch.Tensor, **call) -> float:
    """The largest singular value of the Jacobian at one sequence [n dim]."""
    jacobian = torch.autograd.functional.jacobian(lambda one: layer(one[None], **call)[0], x)
    return torch.linalg.matrix_norm(jacobian.reshape(x.numel(), x.numel()), 2).item()


def test_it_is_the_papers_formula():
    layer, x = _layer(12, 3), torch.randn(2, 5, 12, dtype=torch.float64)
    total = torch.zeros(2, 5, 12, dtype=torch.float64)
    for head in range(3):
        rows = slice(4 * head, 4 * head + 4)
        query, value = layer.query.weight[rows].T, layer.value.weight[rows].T
        squared = (x @ query)[:, :, None] - (x @ query)[:, None]
        weights = (-squared.square().sum(-1) / math.sqrt(4)).softmax(-1)
        matrix = query @ query.T / math.sqrt(4)
        total = total + weights @ x @ matrix @ value @ layer.proj.weight.T[rows]
    torch.testing.assert_close(layer(x), total + layer.proj.bias, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("tokens", [2, 5, 17, 197, 4096])
def test_the_inverse_is_lamberts(tokens):
    exact = lambertw((tokens - 1) / math.e).real
    assert inverse_phi(tokens - 1) == pytest.approx(exact, rel=1e-14)


def test_the_inverse_of_one_token_and_of_a_printed_number():
    assert inverse_phi(0) == 0
    assert inverse_phi(196) == pytest.approx(3.1353681, abs=5e-8)


@pytest.mark.parametrize("tokens", [1, 2, 9])
@pytest.mark.parametrize("causal", [False, True])
def test_no_jacobian_exceeds_the_bound(tokens, causal):
    for heads in (1, 2):
        layer = _layer(8, heads)
        for parameter in layer.parameters():
            torch.nn.init.normal_(parameter)
        bound = lipschitz_bound(layer, tokens)
        for size in (0.01, 0.1, 0.3, 1.0, 10.0, 1000.0):
            x = size * torch.randn(tokens, 8, dtype=torch.float64)
            assert _largest(layer, x, is_causal=causal) <= bound * (1 + 1e-12)


def test_one_token_meets_the_bound():
    layer = _layer(6, 1)
    with torch.no_grad():
        layer.value.weight.copy_(torch.eye(6))
        layer.proj.weight.copy_(torch.eye(6))
    found = _largest(layer, torch.randn(1, 6, dtype=torch.float64))
    assert found == pytest.approx(lipschitz_bound(layer, 1), rel=1e-10)


def test_the_spread_within_a_row_is_what_the_bound_is_made_of():
    # Σ_j w_j s_j with w ∝ e^(−s), s_0 = 0 is largest where all others are at s = 1 + φ⁻¹(N − 1).
    scores = torch.rand(20000, 7, dtype=torch.float64) * 6
    scores[:, 0] = 0
    spread = ((-scores).softmax(-1) * scores).sum(-1)
    most = inverse_phi(6)
    assert spread.max() <= most
    scores = torch.full((7,), 1 + most, dtype=torch.float64)
    scores[0] = 0
    assert ((-scores).softmax(-1) * scores).sum().item() == pytest.approx(most, rel=1e-12)


@pytest.mark.parametrize("factor", [0.5, 3.0])
def test_queries_enter_with_the_fourth_power(factor):
    layer = _layer(8, 1)
    small = 1e-4 * torch.randn(5, 8, dtype=torch.float64)
    before, bound = _largest(layer, small), lipschitz_bound(layer, 5)
    with torch.no_grad():
        layer.query.weight.mul_(factor)
    # Near the origin weights are uniform, and the map is linear with A = W_Q W_Qᵀ/√d: a factor of c².
    assert _largest(layer, small) == pytest.approx(factor**2 * before, rel=1e-5)
    assert lipschitz_bound(layer, 5) == pytest.approx(factor**2 * bound, rel=1e-12)


def test_what_has_no_bound(as_a_user):
    with pytest.raises(ValueError, match="lipschitz_bound: needs an L2Attention, not SoftmaxAttention"):
        lipschitz_bound(attention("softmax")(8, 2), 4)
    for options in ({"position": "rope"}, {"qk_norm": True}):
        with pytest.raises(ValueError, match="lipschitz_bound: holds without position= and qk_norm= only"):
            lipschitz_bound(_layer(**options), 4)
    with pytest.raises(ValueError, match="lipschitz_bound: num_tokens must be at least 1, not 0"):
        lipschitz_bound(_layer(), 0)


def test_a_bias_of_the_values_is_the_only_one_of_the_input():
    names = [name for name, _ in _layer(qkv_bias=True).named_parameters()]
    assert names.count("value.bias") == 1 and "query.bias" not in names
    assert not [name for name, _ in _layer(proj_bias=False).named_parameters() if "bias" in name]
