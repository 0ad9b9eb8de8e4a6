"""The arms of low rank: what their maps are, what a fit does, and that each is exact where it should be."""

import torch

from chapters.experiments.approximations import ARMS, Trial, by_steps, low_rank, relative_error, softmax
from gkalib.data import Heads, Reading
from tests.tolerance import equal

LENGTH = 24


def _heads(batch: int = 2) -> Heads:
    return Heads(*torch.randn(3, batch, 3, LENGTH, 8, dtype=torch.float64).unbind())


def _trial(size: int, heads: Heads) -> Trial:
    return Trial(size, 0, heads, torch.Generator().manual_seed(0))


def test_stretches_are_means_that_use_every_token_once():
    for rank in (1, 5, LENGTH):
        maps = low_rank.stretches(rank, LENGTH, 3)
        assert maps.shape == (3, rank, LENGTH)
        assert ((maps > 0).sum(1) == 1).all()
        torch.testing.assert_close(maps.sum(-1), torch.ones(3, rank))


def test_arms_with_everything_are_the_exact_sum():
    heads = _heads()
    for name in ("nystrom-inverse", "linformer-means", "truncated-svd"):
        found = ARMS[name].approximate(heads, _trial(LENGTH, heads))
        assert relative_error(found, ARMS[name].exact(heads)).max() < 1e-7, name
    assert relative_error(ARMS["skyformer"].approximate(heads, _trial(40, heads)), softmax(heads)).min() > 0.1


def test_linformers_operations_are_those_of_its_four_products():
    heads = _heads()
    products = 2 * LENGTH * 5 * 8 * 4  # E K, F V, Q (EK)ᵀ and the weights times F V
    assert low_rank.linformer_flops(5, heads) == 2 * 3 * products


def test_the_fit_learns_which_places_carry_the_attention(monkeypatch):
    """Every query attends to the third token: means of stretches cannot single it out, a fitted map can."""
    heads = _heads(24)
    heads.query[...], heads.key[:, :, 2] = 1.0, 4.0
    text = Heads(*(part[2:].float() for part in heads))
    monkeypatch.setattr(low_rank, "_other_text", lambda: [text])
    monkeypatch.setattr(low_rank, "LENGTH", LENGTH)
    measured = Heads(*(part[:2] for part in heads))
    exact = softmax(measured)
    trial = _trial(4, measured)
    before = relative_error(ARMS["linformer-means"].approximate(measured, trial), exact).mean()
    monkeypatch.setattr(low_rank, "RATE", 0.05)
    after = relative_error(ARMS["linformer"].approximate(measured, trial), exact).mean()
    assert after < 0.6 * before


def test_the_other_text_is_not_measured_on(monkeypatch):
    everything = [Heads(*(torch.arange(48.0)[:, None, None, None] for _ in range(3)))]
    monkeypatch.setattr(low_rank, "trained_heads", lambda count, length: Reading(everything, torch.zeros(1)))
    low_rank._other_text.cache_clear()
    kept = set(low_rank._other_text()[0].query.flatten().tolist())
    low_rank._other_text.cache_clear()
    assert kept == {float(i) for i in range(48) if i % 12}


def test_gaussian_sums_are_unnormalized():
    heads = _heads()
    distance = (heads.query[..., :, None, :] - heads.key[..., None, :, :]).square().sum(-1)
    equal(low_rank.gaussian_sum(heads), (-distance / (2 * 8**0.5)).exp() @ heads.value)


def test_more_steps_make_a_better_inverse():
    heads = _heads()
    few, many, whole = (by_steps(heads, 6, count) for count in (2, 12, None))
    assert few.shape == (3, 3)
    assert (many[0] < few[0]).all() and whole[0].max() < 1e-9
    inverted = ARMS["nystrom-inverse"].approximate(heads, _trial(6, heads))
    equal(whole[1], relative_error(inverted, softmax(heads)))
    exact = by_steps(heads, LENGTH, None)
    assert exact[1].max() < 1e-7  # every token a landmark
