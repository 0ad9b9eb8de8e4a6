"""Rollout: the product by hand, its laws, and what a discard does to rows."""

import numpy as np
import pytest
import torch

from gkalib.analysis import discarded, patch_grid, query_patches, rollout
from gkalib.analysis.rollout import subsample

ONE = torch.tensor([[0.8, 0.2, 0.0], [0.3, 0.3, 0.4], [0.1, 0.6, 0.3]])
TWO = torch.tensor([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0], [0.2, 0.2, 0.6]])


def drawn(layers: int = 4, heads: int = 3, tokens: int = 7) -> list[torch.Tensor]:
    return [torch.randn(2, heads, tokens, tokens).mul(2).softmax(-1) for _ in range(layers)]


def test_two_layers_by_hand():
    first, second = (0.5 * (one + torch.eye(3)) for one in (ONE, TWO))
    torch.testing.assert_close(rollout([ONE[None, None], TWO[None, None]])[0], second @ first)
    assert not torch.allclose(second @ first, first @ second, atol=0.01)


@pytest.mark.parametrize("discard", [0.0, 0.5, 0.9])
def test_rows_sum_to_one(discard: float):
    flow = rollout(drawn(), discard=discard)
    assert flow.shape == (2, 7, 7) and (flow >= 0).all()
    torch.testing.assert_close(flow.sum(-1), torch.ones(2, 7))


@pytest.mark.parametrize("discard", [0.0, 0.5])
def test_identity_weights_give_the_identity(discard: float):
    each = torch.eye(5).expand(1, 2, 5, 5)
    torch.testing.assert_close(rollout([each] * 6, discard=discard)[0], torch.eye(5))


def test_uniform_weights_lose_nothing_and_approach_the_uniform():
    uniform = torch.full((1, 1, 4, 4), 0.25)
    flow = rollout([uniform] * 3, discard=0.9)[0]
    torch.testing.assert_close(flow, torch.full((4, 4), 0.25) + 0.5**3 * (torch.eye(4) - 0.25))


def test_a_residual_for_each_layer():
    layers = drawn(layers=2)
    last = rollout(layers, residual=[1.0, 0.25])
    torch.testing.assert_close(last, rollout(layers[1:], residual=0.25))


def test_permuted_tokens_permute_the_flow():
    layers, order = drawn(), torch.randperm(7)
    permuted = [layer[:, :, order][..., order] for layer in layers]
    for discard in (0.0, 0.5):
        expected = rollout(layers, discard=discard)[:, order][..., order]
        torch.testing.assert_close(rollout(permuted, discard=discard), expected)


def test_a_discard_is_of_each_matrix():
    matrix = torch.tensor([[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]] * 2])
    kept = torch.tensor([[0.0, 0.0, 0.0, 0.0], [5.0, 6.0, 7.0, 8.0]])
    torch.testing.assert_close(discarded(matrix, 0.5)[0, :2], kept)
    batch = torch.cat([matrix, 10 * matrix])
    torch.testing.assert_close(discarded(batch, 0.5)[1], 10 * discarded(matrix, 0.5)[0])


def test_half_of_a_causal_matrix_is_discarded_already():
    causal = drawn(tokens=8)[0].mean(1).tril()
    torch.testing.assert_close(discarded(causal, 0.4), causal)  # 28 of 64 entries are zero


@pytest.mark.parametrize(
    ("weights", "given", "message"),
    [
        ([], {}, "no layers"),
        ([torch.ones(1, 1, 2, 3)], {}, "as many keys as queries"),
        ([torch.eye(2)[None, None], torch.eye(3)[None, None]], {}, r"layer 1 has weights \[1, 1, 3, 3\]"),
        ([-torch.eye(2)[None, None]], {}, r"magnitudes\(weights\)"),
        ([torch.eye(2)[None, None]], {"discard": 1.0}, "below 1, not 1.0"),
        ([torch.eye(2)[None, None]], {"residual": 1.5}, "from 0 to 1"),
        ([torch.eye(2)[None, None]], {"residual": [0.5, 0.5]}, "2 numbers in residual for 1 layers"),
        ([torch.zeros(1, 1, 2, 2)], {"residual": 0.0}, "a row of layer 0 has nothing left"),
    ],
)
def test_what_is_refused(weights: list, given: dict, message: str, as_a_user):
    with pytest.raises(ValueError, match=f"rollout: .*{message}"):
        rollout(weights, **given)


def test_patches_make_the_square_row_by_row():
    found = patch_grid(torch.arange(18).view(2, 9))
    assert found.shape == (2, 3, 3) and found[0].tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    with pytest.raises(ValueError, match=r"patch_grid: 17 weights make no square"):
        patch_grid(np.zeros((2, 17)))


def test_the_papers_queries_on_its_grid():
    assert query_patches(14) == {
        "upper left": (3, 3),
        "center": (7, 7),
        "lower right": (10, 10),
        "upper right": (3, 10),
    }


def test_large_matrices_are_thinned_evenly_from_end_to_end():
    matrix = np.arange(101.0)[:, None] + np.arange(101.0)
    found, kept = subsample(matrix, most=11)
    assert kept.tolist() == list(range(0, 101, 10))
    np.testing.assert_array_equal(found, matrix[::10, ::10])
    same, every = subsample(matrix[:50, :50])
    assert same.shape == (50, 50) and every.tolist() == list(range(50))
    assert subsample(np.zeros((3, 65, 65)))[0].shape == (3, 50, 50)
