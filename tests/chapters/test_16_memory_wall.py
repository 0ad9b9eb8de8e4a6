"""The labeled equations of chapter 16 that no test of the library holds."""

import functools
import itertools
import random

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

import gkalib
from gkalib.kernels import ExpDot, Gaussian
from gkalib.masks import Causal
from gkalib.smoothing.methods.padded import _columns
from tests.tolerance import equal

State = tuple[Tensor, Tensor, Tensor]  # m [n 1], l [n 1], a [n e]


def _normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def _state(scores: Tensor, value: Tensor) -> State:
    """What a set of keys contributes to each query."""
    largest = scores.amax(-1, keepdim=True)
    similarity = (scores - largest).exp()
    return largest, similarity.sum(-1, keepdim=True), similarity @ value


def _merge(one: State, two: State) -> State:
    """Both sets of keys together; a factor of an empty state is zero."""
    largest = torch.maximum(one[0], two[0])
    left, right = ((part[0] - largest).exp().nan_to_num(0.0) for part in (one, two))
    return largest, left * one[1] + right * two[1], left * one[2] + right * two[2]


def _problem() -> tuple[Tensor, Tensor, Tensor]:
    """Scores up to ±700 (their exponentials overflow when added), and values."""
    query, key, value = _normal(3, 1, 1, 40, 8)
    return 25 * query, 25 * key, value


def test_states_of_any_split_and_order_merge_to_the_output():
    query, key, value = _problem()
    scores, expected = ExpDot().log(query, key)[0, 0], gkalib.smooth(query, key, value, ExpDot())[0, 0]
    assert scores.max() > 700
    keys = list(range(40))
    for seed in range(5):
        random.Random(seed).shuffle(keys)
        cuts = [0, *sorted(random.Random(seed).sample(range(1, 40), 6)), 40]
        sets = [keys[low:high] for low, high in itertools.pairwise(cuts)]
        states = [_state(scores[:, part], value[0, 0, part]) for part in sets]
        merged = functools.reduce(_merge, states)
        for part, whole in zip(merged, _state(scores, value[0, 0]), strict=True):
            equal(part, whole)
        _, total, weighted = merged
        equal(weighted / total, expected)


@pytest.mark.parametrize("mask", [None, Causal()])
@pytest.mark.parametrize("sigma", [0.2, 1.0, 30.0])
def test_a_row_that_sees_itself_has_the_maximum_zero_and_a_sum_from_one_to_n(mask, sigma):
    x = 5 * _normal(1, 2, 30, 8)
    allowed = torch.ones(30, 30, dtype=torch.bool).tril() if mask else torch.ones(30, 30, dtype=torch.bool)
    scores = Gaussian(sigma).log(x, x).masked_fill(~allowed, -torch.inf)
    assert (scores.amax(-1) == 0).all()
    total = scores.exp().sum(-1)
    assert (total >= 1).all() and (total <= allowed.sum(-1)).all()


def test_plain_sums_of_parts_add_up_to_the_output():
    x = 5 * _normal(1, 1, 30, 8)
    similarity = Gaussian(3.0)(x, x)[0, 0]
    parts = [slice(0, 7), slice(7, 8), slice(8, 30)]
    total = sum(similarity[:, part].sum(-1, keepdim=True) for part in parts)
    weighted = sum(similarity[:, part] @ x[0, 0, part] for part in parts)
    equal(weighted / total, gkalib.smooth(x, x, x, Gaussian(3.0))[0, 0])


def test_one_product_of_padded_vectors_gives_the_gaussian():
    query, key, value = _normal(3, 1, 2, 20, 8)
    length = -key.square().sum(-1, keepdim=True) / 2
    longer = torch.cat([key, length], -1)
    out = scaled_dot_product_attention(pad(query, (0, 1), value=1.0), longer, value, scale=0.7**-2)
    equal(out, gkalib.smooth(query, key, value, Gaussian(0.7)))


def test_one_and_two_columns_of_bfloat16():
    number = -(_normal(100_000).exp() * 40).float()
    of_query, of_key = _columns(number, torch.bfloat16)
    number = number.double()
    high, low = (factor * column.double() for factor, column in zip(of_query, of_key, strict=True))
    error = number - high
    assert (error.abs() <= 2**-8 * number.abs()).all()
    assert (error / number).abs().max() > 0.9 * 2**-8  # the bound is nearly reached
    assert ((error - low).abs() <= 2**-16 * number.abs()).all()
