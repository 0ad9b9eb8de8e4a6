"""Which variants a fused operation computes, and that it computes them; for the others, why not."""

import pytest
import torch

from gkalib.layers import attention
from gkalib.smoothing import METHODS, compute_output
from tests.layers.test_variant_laws import DECODING, layer, smoothers, tokens
from tests.tolerance import oracle
from tests.variants import DIM, HEADS, VARIANTS

# On a card tests/smoothing/fused/test_card.py makes these comparisons, in the types that it has.
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="float64 programs run in the interpreter")

FUSED = ("softmax", "qk_norm", "rbf", "l2", "gka", "vlt", "gpa", "non_local", "mixed")
REFUSED = {
    "karat": "base 'silu'",
    "krause": "made for TopK",
    "forgetting": "no bias of each pair",
    "linear": "no form",
    "local_linear": "made for LocalLine",
    "parallax": "made for LocalLine",
    "performer": "no form",
    "rpe": "no form",
}
# Approximations and memories, which bring their own method.
BY_NAME = ("linformer", "nystrom", "skyformer", "gated", "delta", "gated_delta", "mesa")


def test_every_variant_is_one_or_the_other():
    assert sorted([*FUSED, *REFUSED, *BY_NAME]) == sorted(VARIANTS)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", FUSED)
def test_it_is_computed_with_its_gradients(name, causal):
    made, x = layer(name), tokens(batch=1)
    results = {}
    for method in ("fused", "reference"):
        for one in smoothers(made):
            one.method = method
        leaf = x.clone().requires_grad_()
        out = made(leaf, is_causal=causal)
        wanted = (leaf, *made.parameters())
        grads = torch.autograd.grad(out.square().sum(), wanted, allow_unused=True, materialize_grads=True)
        results[method] = [out.detach(), *grads]
    for have, want in zip(*results.values(), strict=True):
        oracle(have, want)


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_the_reason(name):
    for one in smoothers(layer(name)):
        assert REFUSED[name] in (METHODS["fused"].refuses(one.problem(tokens())) or "")


@pytest.mark.parametrize("mode", ["blockwise", "universal"])
def test_karat_as_the_paper_trains_it(mode):
    """Rank 12, Fourier units, no base function: the default, alone or with one operator for all layers."""
    variant = attention("karat", mode=mode, rank=12).for_model(DIM, HEADS, length=16)
    made = variant(DIM, HEADS).double()
    problem = made.problem(tokens(batch=1))
    assert METHODS["fused"].refuses(problem) is None
    oracle(compute_output(problem, "fused"), compute_output(problem, "reference"))


@pytest.mark.parametrize("name", [name for name in FUSED if name in DECODING and name != "mixed"])
@torch.no_grad()
def test_token_by_token(name):
    """The cache read by the fused step gives what the whole sequence gives."""
    made, x = layer(name), tokens(batch=1, length=6)
    whole = made(x, is_causal=True)
    cache = made.cache(1, 6)
    made.method = "fused"
    steps = [made(x[:, i : i + 1], is_causal=True, cache=cache) for i in range(6)]
    oracle(torch.cat(steps, 1), whole)
