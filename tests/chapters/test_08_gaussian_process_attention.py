"""The labeled equations of chapter 8."""

import torch

import gkalib
from gkalib.kernels import DecayingPeriodicBank, ExpDot
from gkalib.masks import Causal
from tests.tolerance import equal

COUNT = 24
D = 32


def _bank(heads: int = 2, terms: int = 5) -> DecayingPeriodicBank:
    """A bank whose parameters are unlike one another."""
    bank = DecayingPeriodicBank(heads, terms, length=9.0, tau=(1.5, 8.0)).double()
    with torch.no_grad():
        for parameter in bank.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return bank


def _pair() -> tuple[torch.Tensor, torch.Tensor]:
    query, key = torch.randn(2, 1, 2, COUNT, 4, dtype=torch.float64)
    return query, key


def _silent() -> torch.Tensor:
    return torch.zeros(1, 2, COUNT, 1, dtype=torch.float64)


def test_the_odds_of_two_keys_are_a_product():
    bank, (query, key) = _bank(), _pair()
    weights = gkalib.attention_weights(query, key, ExpDot() * bank)[0, :, -1]
    content = gkalib.attention_weights(query, key, ExpDot())[0, :, -1]
    prior = bank.lag_table(COUNT).flip(1).exp()
    odds = weights[:, 3] / weights[:, 17]
    torch.testing.assert_close(
        odds, content[:, 3] / content[:, 17] * prior[:, 3] / prior[:, 17], rtol=1e-12, atol=0
    )


def test_content_within_r_nats_moves_at_most_tanh_r_over_4():
    query, key = _pair()
    for scale in (0.1, 0.5, 2.0):
        scores = ExpDot(scale).log(query, key)[0, :, -1]
        spread = scores.amax(-1) - scores.amin(-1)
        bank = _bank()
        with_content = gkalib.attention_weights(query, key, ExpDot(scale) * bank)[0, :, -1]
        prior = gkalib.attention_weights(_silent(), _silent(), bank)[0, :, -1]
        moved = (with_content - prior).abs().sum(-1) / 2
        assert (moved > 0).all() and (moved <= torch.tanh(spread / 4)).all()


def test_the_gradient_of_a_score_is_proportional_to_its_weight():
    scores = torch.randn(1, 1, 1, COUNT, dtype=torch.float64, requires_grad=True)
    query, key = (torch.zeros(1, 1, count, 4, dtype=torch.float64) for count in (1, COUNT))
    value, pull = torch.randn(1, 1, COUNT, 3, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    (gkalib.smooth(query, key, value, bias=scores)[0, 0, 0] @ pull).backward()
    weights, along = scores.detach()[0, 0, 0].softmax(0), value[0, 0] @ pull
    equal(scores.grad[0, 0, 0], weights * (along - weights @ along))


def test_the_share_beyond_a_lag_is_bounded():
    for _ in range(20):
        bank, reach = _bank(), 8
        weights = gkalib.attention_weights(_silent(), _silent(), bank, mask=Causal())[0, :, -1]
        beyond = weights[:, : COUNT - 1 - reach].sum(-1)
        ceiling = (bank.sigma.square() * (-reach / bank.log_length.exp()).exp()).sum(-1)
        bound = (COUNT - 1 - reach) * (ceiling - bank.sigma.square().sum(-1)).exp()
        assert (beyond > 0).all() and (beyond <= bound).all()


def _rotate(vectors, position):
    """As the chapter writes it, through complex numbers: pair m is the numbers m and m + d/2."""
    half = vectors.shape[-1] // 2
    angle = position[:, None] * 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    turned = torch.complex(*vectors.split(half, dim=-1)) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([turned.real, turned.imag], dim=-1)


def test_the_mean_rotated_score_is_a_sum_of_waves():
    """The expectation over q, with k = ρ q in the mean, is a trace: a sum over the basis."""
    rho, position = 0.5, torch.arange(9, dtype=torch.float64)
    basis = torch.eye(D, dtype=torch.float64)[:, None]
    rotated = _rotate(basis.expand(D, 9, D), position)[None]
    mean = rho * ExpDot().log(rotated, rotated)[0].sum(0)
    omega = 10000.0 ** (-torch.arange(D // 2, dtype=torch.float64) / (D // 2))
    lag = position[:, None] - position
    waves = 2 * rho / D**0.5 * (omega * lag[..., None]).cos().sum(-1)
    torch.testing.assert_close(mean, waves, rtol=0, atol=1e-12)


def test_rotated_scores_depend_on_the_lag():
    query, key = torch.randn(2, 1, 1, 1, D, dtype=torch.float64)
    position = torch.arange(40, dtype=torch.float64)
    rotated = [_rotate(one.expand(1, 1, 40, D), position) for one in (query, key)]
    scores = ExpDot().log(*rotated)[0, 0]
    torch.testing.assert_close(scores[7:, 7:], scores[:-7, :-7], rtol=0, atol=1e-12)
    assert (scores[7:] - scores[:-7]).abs().max() > 0.1  # of the query's position alone it is no constant
    torch.testing.assert_close(rotated[1].norm(dim=-1), key.norm(dim=-1).expand(1, 1, 40))
