"""What is special to the linear transformer: its formula, its ε, and decoding from a state."""

import pytest
import torch
from torch.nn.functional import elu

from gkalib.layers import attention
from gkalib.layers.parts import merge, split
from gkalib.smoothing import Cache, Recurrent, compute_weights
from tests.tolerance import equal


def _layer(**options) -> torch.nn.Module:
    return attention("linear", **options)(32, 4).double()


def test_the_formula():
    layer, x = _layer(eps=0.01), torch.randn(2, 7, 32, dtype=torch.float64)
    query, key, value = (split(projection(x), 4) for projection in (layer.query, layer.key, layer.value))
    query, key = elu(query) + 1, elu(key) + 1
    total = (query * key.sum(2, keepdim=True)).sum(-1, keepdim=True) + 0.01
    equal(layer(x), layer.proj(merge(query @ (key.mT @ value) / total)).detach())


def test_rows_sum_to_a_little_less_than_one():
    problem = _layer().problem(torch.randn(1, 5, 32, dtype=torch.float64))
    missing = 1 - compute_weights(problem).sum(-1)
    assert ((missing > 0) & (missing < 1e-6)).all()


@pytest.mark.parametrize("name", ["linear", "performer"])
def test_decodes_from_a_state_of_a_fixed_size(name):
    """With a ``Recurrent`` for a cache a layer gives the rows of the full pass, RoPE included."""
    layer = attention(name)(32, 4, position="rope", registers=2).double()
    x, state, cache = torch.randn(2, 12, 32, dtype=torch.float64), Recurrent(), Cache(2, 12)
    full = layer(x, is_causal=True).detach()
    sizes = set()
    for portion in x.split([5, 1, 1, 1, 4], dim=1):
        start = state.filled
        for kept in (state, cache):
            out = layer(portion, is_causal=True, cache=kept).detach()
            equal(out, full[:, start : start + portion.shape[1]])
        sizes.add(state.numbers)
    assert len(sizes) == 1
    assert state.filled == cache.filled == 12


def test_a_kernel_without_features_refuses_a_state():
    layer, x = attention("softmax")(32, 4), torch.randn(1, 3, 32)
    with pytest.raises(ValueError, match="ExpDot is not a finite inner product of features"):
        layer(x, is_causal=True, cache=Recurrent())
