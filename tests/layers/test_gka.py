"""Gaussian Kernel Attention: a reversible chain with one bandwidth a head, exact to the paper's equations."""

from dataclasses import replace

import pytest
import torch

from gkalib.kernels import ExpDot
from gkalib.layers import attention
from gkalib.smoothing import compute_weights, smooth
from tests.tolerance import agree, equal, oracle

HEADS, DIM, LENGTH = 4, 32, 17
SIGMAS = [0.8, 1.5, 2.5, 4.0]


def layer(**options):
    return attention("gka")(DIM, HEADS, dtype=torch.float64, **options)


def tokens(length: int = LENGTH) -> torch.Tensor:
    return torch.nn.functional.layer_norm(torch.randn(2, length, DIM, dtype=torch.float64), (DIM,))


def on_a_sphere() -> torch.Tensor:
    """Tokens whose heads have length √d, to rounding."""
    return torch.nn.functional.normalize(tokens().unflatten(-1, (HEADS, -1)), dim=-1).mul(8**0.5).flatten(-2)


def weights(module, x, **given):
    return compute_weights(module.problem(x, **given))


def merged(weights, value):
    """What W_O is given: the smoothed heads side by side."""
    return (weights @ value).transpose(1, 2).flatten(2)


def heads(x):
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


@pytest.mark.parametrize("eps", [0.0, 0.05])
def test_it_is_the_papers_equations(eps):
    module, x = layer(sigma=SIGMAS, eps=eps), tokens()
    allowed = torch.ones(LENGTH, LENGTH).tril().bool()
    xh, two_variances = heads(x), 2 * torch.tensor(SIGMAS, dtype=torch.float64)[:, None, None] ** 2
    affinity = (-(xh[:, :, :, None] - xh[:, :, None]).square().sum(-1) / two_variances).exp() * allowed
    mixing = affinity / (affinity.sum(-1, keepdim=True) + eps)
    equal(weights(module, x, is_causal=True), mixing)
    expected = merged(mixing, xh) @ module.proj.weight.T + module.proj.bias
    agree(module(x, is_causal=True), expected, module(x, attn_mask=allowed))


def test_affinities_are_symmetric_and_the_chain_is_reversible():
    module, x = layer(sigma=SIGMAS), tokens()
    problem = module.problem(x)
    affinity = problem.kernel(problem.query, problem.key)
    equal(affinity, affinity.mT)
    stationary = affinity.sum(-1) / affinity.sum((-2, -1))[..., None]
    flow = stationary[..., None] * weights(module, x)
    equal(flow, flow.mT)
    equal((stationary[..., None, :] @ weights(module, x))[..., 0, :], stationary)


def test_the_spectrum_is_real_and_between_zero_and_one():
    x = tokens()
    x[:, 1] = x[:, 0]  # a duplicate token is an eigenvalue of zero
    values = torch.linalg.eigvals(weights(layer(sigma=SIGMAS), x))
    assert values.imag.abs().max() < 1e-12
    values = values.real.sort(-1).values
    assert values.min() > -1e-12 and values[..., 0].abs().max() < 1e-12
    equal(values[..., -1], torch.ones_like(values[..., -1]))


def test_without_a_causal_mask_the_window_keeps_reversibility_but_not_the_spectrum():
    x = torch.linspace(0, 0.01, 6, dtype=torch.float64)[None, :, None].expand(1, 6, DIM)
    module = layer(window=3)
    w = weights(module, x)
    assert (w[0, 0, 3] > 0).sum() == 5
    values = torch.linalg.eigvals(w)
    assert values.imag.abs().max() < 1e-12 and values.real.min() < -0.1
    problem = module.problem(x)
    near = (torch.arange(6)[:, None] - torch.arange(6)).abs() < 3
    sums = (problem.kernel(problem.query, problem.key) * near).sum(-1)
    flow = sums[..., None] * w
    equal(flow, flow.mT)


def test_a_causal_chain_is_triangular_and_the_first_token_absorbs():
    w = weights(layer(sigma=SIGMAS), tokens(), is_causal=True)
    assert not w.triu(1).any()
    equal(w[..., 0, 0], torch.ones_like(w[..., 0, 0]))
    many = torch.linalg.matrix_power(weights(layer(), tokens(), is_causal=True), 100_000)
    assert (many[..., 0] - 1).abs().max() < 1e-9  # sooner or later every token is a copy of the first


def test_a_small_bandwidth_leaves_tokens_alone_and_a_large_one_averages_what_is_seen():
    x = tokens()
    equal(weights(layer(sigma=0.05), x)[0, 0], torch.eye(LENGTH, dtype=torch.float64))
    for given, seen in (
        ({}, torch.ones(LENGTH, LENGTH)),
        ({"is_causal": True}, torch.ones(LENGTH, LENGTH).tril()),
    ):
        uniform = (seen / seen.sum(-1, keepdim=True)).double()
        off = (weights(layer(sigma=1e4), x, **given) - uniform).abs().max()
        assert off < 1e-6


def test_on_a_sphere_it_is_softmax_attention_of_the_tokens_themselves():
    x = on_a_sphere()
    module, xh = layer(sigma=SIGMAS), heads(x)
    scale = torch.tensor(SIGMAS, dtype=torch.float64) ** -2
    equal(weights(module, x), torch.softmax(scale[:, None, None] * (xh @ xh.mT), -1))
    start = layer().problem(x)  # σ = d^¼ is the temperature √d
    equal(compute_weights(start), compute_weights(replace(start, kernel=ExpDot())))


@pytest.mark.parametrize("window", [1, 5, LENGTH])
def test_a_causal_window_is_a_band_of_exactly_that_many_keys(window):
    x, i = tokens(), torch.arange(LENGTH)
    band = (i[:, None] - window < i) & (i <= i[:, None])
    w = weights(layer(sigma=SIGMAS, window=window), x, is_causal=True)
    equal(w, weights(layer(sigma=SIGMAS), x, attn_mask=band))
    assert ((w > 0).sum(-1) == (i + 1).clamp(max=window)).all()
    if window == LENGTH:
        equal(w, weights(layer(sigma=SIGMAS), x, is_causal=True))


def test_equal_tokens_are_a_fixpoint():
    x = tokens()[:, :1].expand(2, LENGTH, DIM)
    module = layer(sigma=SIGMAS)
    equal(weights(module, x), torch.full((2, HEADS, LENGTH, LENGTH), 1 / LENGTH, dtype=torch.float64))
    expected = x @ module.proj.weight.T + module.proj.bias
    equal(module(x), expected)


def test_the_gradient_of_the_log_bandwidth():
    """d loss/dℓ = Σ_ij w_ij (g_i·x_j − g_i·y_i) ‖x_i − x_j‖² / σ², where g is d loss/dy."""
    module, x = layer(sigma=SIGMAS, project_out=False), tokens()
    w, xh = weights(module, x).detach(), heads(x)
    g = torch.randn_like(x)
    (module(x) * g).sum().backward()
    gh, squares = heads(g), torch.cdist(xh, xh) ** 2
    gain = gh @ xh.mT - (gh * (w @ xh)).sum(-1, keepdim=True)
    variance = torch.tensor(SIGMAS, dtype=torch.float64) ** 2
    # a sum over all pairs of both signs, which cancel
    oracle(module.kernel.log_sigma.grad, (w * gain * squares).sum((0, 2, 3)) / variance)


def test_the_language_form_turns_and_normalizes_what_it_compares():
    x = tokens()
    module = layer(sigma=SIGMAS, qk_norm=True, position="rope")
    problem = module.problem(x, is_causal=True)
    placed = module.position(module.key_norm(heads(x)), torch.arange(LENGTH))
    equal(problem.query, placed)
    assert problem.one_tensor
    plain = layer(sigma=SIGMAS, qk_norm=True, position="rope", values="plain").problem(x, is_causal=True)
    equal(plain.query, placed)
    equal(plain.value, heads(x))
    equal(compute_weights(plain), compute_weights(problem))
    swapped = module.key_norm(module.position(heads(x), torch.arange(LENGTH)))
    equal(swapped, placed)  # the order of norm and rotation does not matter


@pytest.mark.parametrize("values", ["placed", "plain"])
def test_placed_values_write_absolute_positions_into_the_output_and_plain_ones_do_not(values):
    module, x = layer(qk_norm=True, position="rope", values=values), tokens()
    here = torch.arange(LENGTH)
    first = module(x, is_causal=True, positions=(here, here))
    moved = module(x, is_causal=True, positions=(here + 50, here + 50))
    change = (first - moved).abs().max()
    assert change > 0.1 if values == "placed" else change < 1e-5  # the angles are kept in float32


def test_smooth_is_given_one_tensor():
    x = heads(tokens())
    problem = layer().problem(tokens())
    assert problem.query is problem.key and problem.key is problem.value
    equal(smooth(x, x, x, layer().kernel), compute_weights(layer().problem(x.transpose(1, 2).flatten(2))) @ x)


def test_there_are_no_projected_values_to_add_to():
    with pytest.raises(ValueError, match="gka: has no projected values to add to"):
        layer()(tokens(), value_bias=torch.zeros(2, HEADS, LENGTH, DIM // HEADS, dtype=torch.float64))
