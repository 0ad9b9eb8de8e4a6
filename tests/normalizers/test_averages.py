"""From scores to weights: averages, projections, empty rows, the smallest details of ties."""

import pytest
import torch

from gkalib.normalizers import Dropout, Normalizer, RowSum, Simplex, TopK, Unnormalized
from tests.cases import NORMALIZERS
from tests.tolerance import agree, equal


def _scores(rows: int = 40, keys: int = 12) -> torch.Tensor:
    scores = 2 * torch.randn(2, 3, rows, keys, dtype=torch.float64)
    scores[..., -3:, 4:] = -torch.inf
    scores[..., -1, :] = -torch.inf
    return scores


@pytest.mark.parametrize("name", NORMALIZERS)
def test_averages_is_true_exactly_where_rows_are_averages(name):
    normalizer = NORMALIZERS[name]()
    weights = normalizer(_scores())
    assert (weights >= 0).all()
    assert (weights[..., -1, :] == 0).all(), "the row without a key"
    totals = weights[..., :-1, :].sum(-1)
    if normalizer.averages:
        equal(totals, torch.ones_like(totals))
    else:
        assert ((totals - 1).abs() > 1e-3).any()


@pytest.mark.parametrize("name", NORMALIZERS)
def test_masked_keys_get_nothing_and_change_nothing(name):
    normalizer = NORMALIZERS[name]()
    scores = _scores()
    weights = normalizer(scores)
    assert (weights[scores.isneginf()] == 0).all()
    equal(weights[..., -3:-1, :4], normalizer(scores[..., -3:-1, :4]))


@pytest.mark.parametrize("normalizer", [RowSum(), RowSum(eps=0.3), TopK(2), Simplex()], ids=repr)
@pytest.mark.parametrize("empty", [False, True])
def test_what_no_number_is_looked_at_for_is_the_same_to_the_bit(normalizer: Normalizer, empty: bool):
    """A transform keeps numbers out of sight, so that rows count as possibly empty."""
    scores = _scores() if empty else _scores()[..., :-1, :]
    factor = torch.randn_like(scores)

    def total(scores: torch.Tensor) -> torch.Tensor:
        return (normalizer(scores) * factor).sum()

    (unseen,) = torch.vmap(normalizer)(scores[None])
    assert torch.equal(normalizer(scores), unseen)
    seen = scores.clone().requires_grad_()
    total(seen).backward()
    assert torch.equal(seen.grad, torch.func.grad(total)(scores))


def test_row_sum_with_eps_is_the_formula():
    scores = _scores()
    values = scores.exp()
    equal(RowSum(eps=0.3)(scores), values / (values.sum(-1, keepdim=True) + 0.3))


def test_row_sum_survives_scores_that_overflow_and_underflow():
    scores = torch.tensor(
        [[[[2000.0, 1999.0, -torch.inf]], [[-2000.0, -2001.0, -torch.inf]]]], dtype=torch.float64
    )
    wanted = torch.tensor([1 / (1 + torch.e**-1), 1 - 1 / (1 + torch.e**-1), 0.0], dtype=torch.float64)
    equal(RowSum()(scores), wanted.expand(1, 2, 1, 3))
    with_eps = RowSum(eps=1e-6)(scores)
    equal(with_eps[:, 0], wanted.expand(1, 1, 3))
    assert (with_eps[:, 1] == 0).all()


def test_top_k_keeps_k_and_breaks_ties_by_index():
    weights = TopK(2)(torch.tensor([[[[1.0, 3.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]]]], dtype=torch.float64))
    assert (weights > 0).int().tolist() == [[[[1, 1, 0, 0], [1, 1, 0, 0]]]]


def test_top_k_of_all_keys_is_the_row_sum():
    scores = _scores()
    equal(TopK(50)(scores), RowSum()(scores))


def test_simplex_equals_bisection_and_is_idempotent():
    scores = _scores()[..., :-3, :]
    low, high = scores.min(-1, keepdim=True).values - 1, scores.max(-1, keepdim=True).values
    for _ in range(200):
        middle = (low + high) / 2
        too_much = (scores - middle).clamp(min=0).sum(-1, keepdim=True) > 1
        low, high = torch.where(too_much, middle, low), torch.where(too_much, high, middle)
    projected = Simplex()(scores)
    equal(projected, (scores - low).clamp(min=0))
    equal(Simplex()(projected), projected)


@pytest.mark.parametrize("offset", [1e5, 1e7, -1e7])
def test_a_number_added_to_a_row_does_not_move_its_point_of_the_simplex(offset):
    scores = _scores().float() + offset  # what is left of the scores after rounding
    agree(Simplex()(scores), Simplex()(scores.double() - offset), Simplex()(scores - offset))


def test_a_row_with_a_nan_or_infinity_has_no_point_of_the_simplex():
    rows = torch.tensor([[1.0, torch.nan], [1.0, torch.inf], [1.0, 0.5], [-torch.inf, -torch.inf]])
    weights = Simplex()(rows[None, None])[0, 0]
    assert weights[:2].isnan().any(-1).all() and weights[2:].tolist() == [[0.75, 0.25], [0.0, 0.0]]


def test_signed_values_are_divided_by_their_sum():
    values = torch.tensor([[[[1.0, -0.5, 1.5], [0.0, 0.0, 0.0]]]], dtype=torch.float64)
    for eps, total in ((0.0, 2.0), (0.5, 2.5)):
        weights = RowSum(eps=eps).of_values(values)
        equal(weights, torch.tensor([[[[1.0, -0.5, 1.5], [0, 0, 0]]]], dtype=torch.float64) / total)
    equal(Unnormalized().of_values(values), values)
    with pytest.raises(ValueError, match=r"TopK\(2\) needs scores"):
        TopK(2).of_values(values)


def test_dropout_drops_in_training_only_and_keeps_the_mean():
    normalizer, scores = Dropout(RowSum(), 0.25), _scores()
    assert not normalizer.averages
    weights, kept = normalizer(scores), RowSum()(scores)
    dropped = (weights == 0) & (kept > 0)
    assert 0.2 < dropped[kept > 0].double().mean() < 0.3
    equal(weights[~dropped], kept[~dropped] / 0.75)
    normalizer.eval()
    assert normalizer.averages
    equal(normalizer(scores), kept)
    assert repr(Dropout(TopK(2), 0.1)) == "Dropout(TopK(2), 0.1)"


@pytest.mark.usefixtures("as_a_user")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RowSum(eps=-1.0), "eps must be zero or positive"),
        (lambda: RowSum(eps=float("nan")), "eps must be zero or positive"),
        (lambda: RowSum(eps=torch.ones(2)), "RowSum: eps must be a number, not tensor"),
        (lambda: TopK(0), "k must be at least 1"),
        (lambda: TopK(1.5), "TopK: k must be a whole number, not 1.5"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
