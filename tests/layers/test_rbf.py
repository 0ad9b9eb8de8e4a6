"""What distinguishes RBF attention: its laws, its options and its errors."""

import math

import pytest
import torch
from torch.nn.functional import pad, scaled_dot_product_attention

import gkalib
from gkalib.kernels import Gaussian
from gkalib.layers import attention
from gkalib.masks import Causal
from gkalib.normalizers import RowSum, Unnormalized
from gkalib.smoothing import compute_weights


def _normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def _rbf(width: int) -> Gaussian:
    """The article's kernel, γ = 1/√d."""
    return Gaussian((2 / math.sqrt(width)) ** -0.5)


def _naive(query, key, value, allowed):
    """Distances from differences, γ = 1/√d."""
    distance = (query[..., :, None, :] - key[..., None, :, :]).square().sum(-1)
    scores = (-distance / math.sqrt(query.shape[-1])).masked_fill(~allowed, -torch.inf)
    return scores.softmax(-1) @ value


def _algebraic(query, key, value, allowed):
    """2γ q·k − γ‖k‖²: the query's norm dropped."""
    gamma = 1 / math.sqrt(query.shape[-1])
    scores = 2 * gamma * query @ key.mT - gamma * key.square().sum(-1)[..., None, :]
    return scores.masked_fill(~allowed, -torch.inf).softmax(-1) @ value


def _padded(query, key, value, allowed):
    """The article's trick: one column more, zeros to a multiple of 8, PyTorch's attention."""
    width = query.shape[-1]
    more = -(width + 1) % 8
    longer = pad(torch.cat([query, torch.ones_like(query[..., :1])], -1), (0, more))
    other = pad(torch.cat([key, -0.5 * key.square().sum(-1, keepdim=True)], -1), (0, more))
    return scaled_dot_product_attention(longer, other, value, attn_mask=allowed, scale=2 / math.sqrt(width))


@pytest.mark.parametrize(("width", "length", "causal"), [(40, 63, True), (65, 17, False)])
def test_five_ways_to_one_result_and_one_gradient(width, length, causal):
    inputs = [_normal(1, 2, length, width).requires_grad_() for _ in range(3)]
    upstream = _normal(1, 2, length, width)
    allowed = torch.ones(length, length, dtype=torch.bool)
    allowed = allowed.tril() if causal else allowed
    mask = Causal() if causal else None
    ways = {
        "naive": lambda *qkv: _naive(*qkv, allowed),
        "algebraic": lambda *qkv: _algebraic(*qkv, allowed),
        "padded by hand": lambda *qkv: _padded(*qkv, allowed),
        **{
            method: lambda *qkv, method=method: gkalib.smooth(*qkv, _rbf(width), mask=mask, method=method)
            for method in ("reference", "dense", "padded")
        },
    }
    found = {}
    for name, way in ways.items():
        out = way(*inputs)
        found[name] = [out.detach(), *torch.autograd.grad(out, inputs, upstream)]
    for name, results in found.items():
        for result, exact in zip(results, found["naive"], strict=True):
            torch.testing.assert_close(result, exact, rtol=1e-11, atol=1e-12, msg=name)


@pytest.mark.parametrize("form", ["softmax", "unnormalized"])
def test_the_printed_gradients(form):
    query, key, value, upstream = (0.5 * _normal(1, 1, 9, 6) for _ in range(4))
    inputs = [one.requires_grad_() for one in (query, key, value)]
    gamma = 1 / math.sqrt(6)
    normalizer = RowSum() if form == "softmax" else Unnormalized()
    out = gkalib.smooth(*inputs, _rbf(6), normalizer=normalizer)
    found = torch.autograd.grad(out, inputs, upstream)
    with torch.no_grad():
        weights = gkalib.attention_weights(query, key, _rbf(6), normalizer=normalizer)
        inner = upstream @ value.mT
        if form == "softmax":
            inner = inner - (upstream * out).sum(-1, keepdim=True)
        scores = weights * inner
        over_keys, over_queries = scores.sum(-1)[..., None], scores.sum(-2)[..., None]
        by_formula = (
            2 * gamma * (scores @ key - over_keys * query),
            2 * gamma * (scores.mT @ query - over_queries * key),
            weights.mT @ upstream,
        )
    for actual, exact in zip(found, by_formula, strict=True):
        torch.testing.assert_close(actual, exact, rtol=1e-12, atol=1e-14)
    if form == "softmax":
        assert over_keys.abs().max() < 1e-14  # the query's own norm drops out of its gradient


def test_the_unnormalized_form_is_the_softmax_form_times_its_mass():
    x = _normal(2, 9, 16)
    torch.manual_seed(1)
    averaging = attention("rbf", project_out=False)(16, 2).double()
    free = attention("rbf", form="unnormalized", project_out=False)(16, 2).double()
    free.load_state_dict(averaging.state_dict())
    weights = compute_weights(free.problem(x, is_causal=True))
    assert (weights >= 0).all() and (weights <= 1).all()
    assert ((weights > 0) == torch.ones(9, 9, dtype=torch.bool).tril()).all()
    mass = weights.sum(-1).transpose(1, 2)[..., None].expand(2, 9, 2, 8).reshape(2, 9, 16)
    torch.testing.assert_close(
        free(x, is_causal=True) / mass, averaging(x, is_causal=True), rtol=1e-12, atol=1e-13
    )


def test_half_the_articles_gamma_is_softmax_attention_without_votes():
    x = _normal(1, 7, 16)
    dot = attention("softmax")(16, 2).double()
    rbf = attention("rbf", gamma=0.5 / math.sqrt(8))(16, 2).double()
    rbf.load_state_dict(dot.state_dict())
    posed = dot.problem(x)
    votes = (posed.key.square().sum(-1) / (2 * math.sqrt(8))).exp()[..., None, :]
    elected = compute_weights(rbf.problem(x)) * votes
    torch.testing.assert_close(
        elected / elected.sum(-1, keepdim=True), compute_weights(posed), rtol=1e-11, atol=1e-13
    )


def test_xsa_takes_out_the_part_along_the_own_value():
    x = _normal(2, 6, 16)
    layer = attention("rbf", xsa=True)(16, 2).double()
    problem = layer.problem(x, is_causal=True)
    plain = gkalib.smooth(problem.query, problem.key, problem.value, problem.kernel, mask=Causal())
    out = layer.finish(plain, problem)
    assert (out * problem.value).sum(-1).abs().max() < 1e-14
    off = plain - out
    torch.testing.assert_close(
        off,
        (off * problem.value).sum(-1, keepdim=True)
        * problem.value
        / problem.value.square().sum(-1, keepdim=True),
        rtol=0,
        atol=1e-14,
    )
    assert out[:, :, 0].abs().max() < 1e-14  # the first token has nothing but its own value


def test_xsa_reads_the_own_value_in_decoding_too():
    x = _normal(2, 6, 16)
    layer = attention("rbf", xsa=True, position="susie", registers=1)(16, 2).double()
    cache = layer.cache(2, 6)
    rows = [layer(x[:, i : i + 1], is_causal=True, cache=cache) for i in range(6)]
    torch.testing.assert_close(torch.cat(rows, 1), layer(x, is_causal=True), rtol=1e-11, atol=1e-13)


def test_positions_and_registers_are_all_that_it_adds_to_softmax():
    def count(name: str, **options) -> int:
        layer = attention(name, qkv_bias=True, **options)(256, 4)
        return sum(one.numel() for one in layer.parameters())

    assert count("rbf", position="susie", registers=3) - count("softmax", position="rope") == 4 * (
        32 + 3 * 64
    )
    assert count("softmax", position="rope") == 4 * 256**2 + 4 * 256


def test_xsa_and_context_exclude_each_other():
    layer = attention("rbf", xsa=True)(16, 2).double()
    with pytest.raises(ValueError, match="rbf: xsa takes out a token's own value, and with context="):
        layer(_normal(1, 3, 16), context=_normal(1, 3, 16))
