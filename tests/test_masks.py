"""Which keys each mask shows, written out."""

import pytest
import torch

import gkalib
from gkalib import kernels, masks


def _seen(mask, n: int = 4, m: int = 4, positions=None, batch: int = 1) -> list:
    """Which keys get weight, as 0 and 1, of the first head."""
    query, key = torch.zeros(batch, 2, n, 3), torch.zeros(batch, 2, m, 3)
    weights = gkalib.attention_weights(query, key, kernels.Gaussian(1.0), mask=mask, positions=positions)
    return (weights[:, 0] > 0).int().tolist()


def test_causal():
    assert _seen(masks.Causal()) == [[[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]]


def test_causal_with_fewer_queries_aligns_the_last():
    assert _seen(masks.Causal(), n=2) == [[[1, 1, 1, 0], [1, 1, 1, 1]]]


def test_causal_with_more_queries_leaves_the_first_without_a_key():
    assert _seen(masks.Causal(), n=3, m=2) == [[[0, 0], [1, 0], [1, 1]]]


def test_window_is_symmetric_and_with_causal_shows_exactly_size_keys():
    assert _seen(masks.Window(2)) == [[[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]]
    assert _seen(masks.Causal() & masks.Window(2)) == [
        [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    ]


def test_key_padding_may_leave_a_sequence_empty():
    assert _seen(masks.KeyPadding(torch.tensor([0, 2])), n=1, batch=2) == [[[0, 0, 0, 0]], [[1, 1, 0, 0]]]


def test_document():
    ids = torch.tensor([5, 5, 9, 9])
    assert _seen(masks.Document(ids)) == [[[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]]
    assert _seen(masks.Document(ids), n=1) == [[[0, 0, 1, 1]]]
    per_batch = torch.tensor([[5, 5, 9, 9], [1, 2, 3, 4]])
    assert _seen(masks.Document(per_batch), n=1, batch=2) == [[[0, 0, 1, 1]], [[0, 0, 0, 1]]]


def test_tensor_is_taken_pair_by_pair_and_broadcast():
    allowed = torch.tensor([[True, False], [False, False]])
    assert _seen(allowed, 2, 2) == [[[1, 0], [0, 0]]]
    assert _seen(allowed[None, None, :1], 2, 2) == [[[1, 0], [1, 0]]]
    assert _seen(torch.stack([allowed, ~allowed])[:, None], 2, 2, batch=2) == [
        [[1, 0], [0, 0]],
        [[0, 1], [1, 1]],
    ]


def test_positions_move_masks():
    positions = (torch.tensor([7, 1]), torch.tensor([0, 1, 7, 9]))
    assert _seen(masks.Causal(), n=2, positions=positions) == [[[1, 1, 1, 0], [1, 1, 0, 0]]]
    per_batch = (torch.tensor([[7], [1]]), torch.tensor([[0, 1, 7, 9], [0, 1, 2, 3]]))
    assert _seen(masks.Causal(), n=1, positions=per_batch, batch=2) == [[[1, 1, 1, 0]], [[1, 1, 0, 0]]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: masks.Window(0), "size must be at least 1, not 0"),
        (lambda: masks.KeyPadding(torch.ones(2)), "lengths must be whole numbers"),
        (lambda: masks.Document(torch.zeros(2, 2, 2, dtype=torch.long)), "ids must be whole numbers"),
        (lambda: masks.Pairs(torch.zeros(3, 3)), "must be boolean"),
        (lambda: _seen(masks.KeyPadding(torch.ones(3, dtype=torch.long))), "3 lengths for a batch of 1"),
        (lambda: _seen(masks.Document(torch.zeros(3, dtype=torch.long))), "do not fit"),
        (lambda: _seen(torch.ones(4, 5, dtype=torch.bool)), r"shape \[1, 1, 4, 5\] does not broadcast"),
    ],
)
def test_bad_masks(make, message):
    with pytest.raises(ValueError, match=message):
        make()
