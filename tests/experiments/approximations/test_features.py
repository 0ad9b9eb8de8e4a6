"""The identities behind the arms by random features, and that each comes near softmax on mild heads."""

import pytest
import torch

from chapters.experiments.approximations import ARMS, Trial, features, recorded, softmax
from gkalib import results
from gkalib.data import Heads
from gkalib.kernels import ExpDot, Gaussian
from tests.tolerance import equal


def _heads() -> Heads:
    query, key, value = torch.randn(3, 2, 3, 20, 16, dtype=torch.float64)
    return Heads(query / 3 + 0.3, key / 3 - 0.3, value)


def test_votes_make_the_gaussian_the_dot_product():
    heads = _heads()
    log_votes = heads.key.square().sum(-1, keepdim=True) / 8
    equal(features.voted(heads, Gaussian(2.0), log_votes), softmax(heads))


def test_votes_make_up_for_moving_queries_and_keys_to_their_means():
    heads = _heads()
    query, key = (part - part.mean(2, keepdim=True) for part in (heads.query, heads.key))
    log_votes = (heads.query.mean(2, keepdim=True) * heads.key).sum(-1, keepdim=True) / 4
    equal(features.voted(Heads(query, key, heads.value), ExpDot(), log_votes), softmax(heads))


@pytest.mark.parametrize("name", ["performer", "performer-centered", "random-fourier"])
def test_arms_come_near_softmax(name):
    heads = _heads()
    exact = softmax(heads)
    errors = []
    for size in (32, 2048):
        trial = Trial(size, 0, heads, torch.Generator().manual_seed(0))
        errors.append(((ARMS[name].approximate(heads, trial) - exact).norm() / exact.norm()).item())
    assert errors[1] < 0.1 and errors[1] < errors[0] / 3


def test_recorded_errors_are_means_over_seeds():
    sizes, errors = recorded("performer")
    runs = results.load("approximations", arm="performer")
    assert sizes == [16, 32, 64, 128, 256, 512, 1024] and len(runs) == 3
    assert errors[4] == pytest.approx(sum(run.metrics["err_256"] for run in runs) / 3)
