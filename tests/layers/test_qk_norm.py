"""QK-norm: cosines, the two starts of their factor, and the Gaussian that it is."""

import math

import pytest
import torch
from torch.nn.functional import cosine_similarity

import gkalib
from gkalib.kernels import Gaussian
from gkalib.layers import attention
from gkalib.smoothing import compute_weights

# HeadNorm adds float32's spacing to the mean square, so a length is √d up to some 1e-7.
NORM = {"rtol": 1e-5, "atol": 1e-5}


def _problem(**options):
    layer = attention("qk_norm", **options)(24, 3).double()
    return layer, layer.problem(torch.randn(2, 7, 24, dtype=torch.float64))


def _cosines(layer):
    x = torch.randn(2, 7, 24, dtype=torch.float64)
    query, key = layer.heads(layer.query(x)), layer.heads(layer.key(x))
    return x, cosine_similarity(query[..., :, None, :], key[..., None, :, :], dim=-1)


@pytest.mark.parametrize(
    ("options", "factor"),
    [({"norm": "rms"}, math.sqrt(8)), ({"length": 16}, math.log2(240)), ({"length": 2}, 1.0)],
)
def test_scores_are_a_factor_times_the_cosine(options, factor):
    layer = attention("qk_norm", **options)(24, 3).double()
    x, cosines = _cosines(layer)
    problem = layer.problem(x)
    torch.testing.assert_close(problem.kernel.log(problem.query, problem.key), factor * cosines, **NORM)
    torch.testing.assert_close(compute_weights(problem), (factor * cosines).softmax(-1), **NORM)


def test_it_is_rbf_attention_on_the_sphere_with_gamma_half_the_factor():
    _, problem = _problem(length=16)
    on_unit_sphere = [one / math.sqrt(8) for one in (problem.query, problem.key)]
    gamma = math.log2(240) / 2
    gaussian = gkalib.attention_weights(*on_unit_sphere, Gaussian((2 * gamma) ** -0.5))
    torch.testing.assert_close(compute_weights(problem), gaussian, **NORM)


def test_rms_is_softmax_attention_with_heads_normalized():
    x = torch.randn(2, 7, 24, dtype=torch.float64)
    cosine = attention("qk_norm", norm="rms", position="rope")(24, 3).double()
    softmax = attention("softmax", qk_norm=True, position="rope")(24, 3).double()
    softmax.load_state_dict(cosine.state_dict())
    torch.testing.assert_close(cosine(x, is_causal=True), softmax(x, is_causal=True), rtol=0, atol=0)


def test_the_length_of_a_key_counts_for_nothing():
    layer, _ = _problem(norm="rms")
    x = torch.randn(1, 7, 24, dtype=torch.float64)
    before = compute_weights(layer.problem(x))
    with torch.no_grad():
        layer.key.weight.mul_(100)
    torch.testing.assert_close(compute_weights(layer.problem(x)), before, **NORM)


def test_what_timm_passes_is_taken():
    layer = attention("qk_norm", length=9)(24, 3, qk_norm=False, norm_layer=torch.nn.LayerNorm)
    assert not list(layer.query_norm.parameters())
