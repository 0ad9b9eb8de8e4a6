"""What is special to local linear attention and to Parallax: their limits, their slopes, their errors."""

import pytest
import torch

from gkalib import attention, replace_attention, smooth
from gkalib.layers import Smoother
from gkalib.normalizers import TopK
from gkalib.smoothing import Dense
from gkalib.smoothing.local_line import LocalLine
from tests.layers.test_variant_laws import layer, tokens
from tests.tolerance import equal


def _like_softmax(name: str, **options) -> tuple[Smoother, Smoother]:
    """A layer and one of softmax attention with its projections."""
    made, softmax = attention(name, **options)(32, 4).double(), attention("softmax")(32, 4).double()
    softmax.load_state_dict(made.state_dict(), strict=False)
    return made, softmax


def test_a_large_ridge_is_softmax_attention():
    made, softmax = _like_softmax("local_linear", ridge=1e16)
    x = tokens()
    equal(made(x, is_causal=True), softmax(x, is_causal=True))


def test_parallax_starts_as_softmax_attention():
    made, softmax = _like_softmax("parallax")
    x = tokens()
    equal(made(x, is_causal=True), softmax(x, is_causal=True))
    made.slope.weight.data.normal_()
    assert (made(x) - softmax(x)).abs().max() > 1e-3


def test_a_ridge_is_learned_or_given():
    learned, given = (
        attention("local_linear", ridge=0.5)(32, 4),
        attention("local_linear", learn=False)(32, 4),
    )
    assert learned.normalizer.ridge.tolist() == pytest.approx([0.5] * 4) and given.normalizer.ridge == 1.0
    assert "normalizer.log_ridge" in dict(learned.named_parameters())
    assert not [name for name, _ in given.named_parameters() if "ridge" in name]


def test_parallax_refuses_another_normalizer():
    made = attention("parallax")(32, 4)
    made.normalizer = TopK(3)
    with pytest.raises(
        ValueError, match=r"^parallax: fits lines with weights that sum to one, not with TopK"
    ):
        made(torch.randn(1, 5, 32))


@pytest.mark.parametrize("method", ["dense", "conjugate", "reference"])
def test_every_method_trains_the_layer_alike(method):
    made, x = layer("local_linear", method=method), tokens()
    torch.manual_seed(0)
    same = layer("local_linear")
    same.load_state_dict(made.state_dict())
    grads = [
        torch.autograd.grad(each(x, is_causal=True).square().sum(), [*each.parameters()])
        for each in (made, same)
    ]
    for have, want in zip(*grads, strict=True):
        equal(have, want)


def test_what_a_swapped_model_keeps():
    """Both take over the projections of another library's layer; only what they add is fresh."""
    for name, fresh in (("local_linear", "normalizer.log_ridge"), ("parallax", "slope.weight")):
        swap = replace_attention(torch.nn.TransformerEncoderLayer(32, 4), name)
        assert fresh in " ".join(swap.fresh) and "query.weight" in " ".join(swap.copied) and not swap.dropped


def test_in_blocks_every_query_has_its_own_slope():
    query, key, value, slope = (torch.randn(2, 4, 16, 8, dtype=torch.float64) for _ in range(4))
    whole = smooth(query, key, value, normalizer=LocalLine(slope=slope))
    equal(smooth(query, key, value, normalizer=LocalLine(slope=slope), method=Dense(memory=2**13)), whole)
