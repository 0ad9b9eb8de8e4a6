"""Value-less attention: softmax attention whose value projection is the identity."""

import pytest
import torch

from gkalib.layers import attention
from gkalib.smoothing import compute_weights
from tests.tolerance import equal

HEADS, DIM, LENGTH = 4, 32, 17


def layer(name: str = "vlt", **options):
    return attention(name)(DIM, HEADS, dtype=torch.float64, **options)


def tokens() -> torch.Tensor:
    return torch.randn(2, LENGTH, DIM, dtype=torch.float64)


@pytest.mark.parametrize("qkv_bias", [False, True])
def test_it_is_softmax_attention_with_an_identity_for_values(qkv_bias):
    vlt, softmax, x = layer(qkv_bias=qkv_bias), layer("softmax", qkv_bias=qkv_bias), tokens()
    with torch.no_grad():
        softmax.value.weight.copy_(torch.eye(DIM))
        if qkv_bias:
            vlt.bias.normal_()
            softmax.value.bias.copy_(vlt.bias)
    for part in ("query", "key", "proj"):
        getattr(softmax, part).load_state_dict(getattr(vlt, part).state_dict())
    equal(vlt(x, is_causal=True), softmax(x, is_causal=True))


def test_the_kept_bias_does_what_the_output_bias_could():
    assert attention("vlt", keep_bias=False)(DIM, HEADS, qkv_bias=True).bias is None
    module, x = layer(qkv_bias=True), tokens()
    before = module(x)
    with torch.no_grad():
        module.bias.normal_()
    equal(module(x) - before, (module.bias @ module.proj.weight.T).expand(2, LENGTH, DIM))


def test_positions_and_norms_reach_queries_and_keys_only():
    x = tokens()
    problem = layer(position="rope", qk_norm=True).problem(x)
    equal(problem.value, x.unflatten(-1, (HEADS, -1)).transpose(1, 2))
    assert (problem.key.square().mean(-1) - 1).abs().max() < 1e-4  # the norm's own small constant


def test_tied_to_a_multiple_of_the_identity_it_is_gka_on_a_sphere():
    vlt, gka = layer(), layer("gka")
    x = torch.nn.functional.normalize(tokens().unflatten(-1, (HEADS, -1)), dim=-1).flatten(-2)
    with torch.no_grad():
        vlt.query.weight.copy_(torch.eye(DIM))
        vlt.key.weight.copy_(torch.eye(DIM))
    equal(compute_weights(vlt.problem(x)), compute_weights(gka.problem(x)))
