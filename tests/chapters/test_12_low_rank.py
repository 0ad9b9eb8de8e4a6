"""The labeled equations of chapter 12."""

import torch

import gkalib
from chapters.experiments.approximations import Trial, best_of_rank
from gkalib.data import Heads
from gkalib.kernels import ExpDot, Gaussian
from gkalib.normalizers import Unnormalized
from gkalib.smoothing import Skyformer
from gkalib.smoothing.methods.landmarks import pseudo_inverse
from tests.tolerance import equal


def _normal(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def test_scores_have_the_rank_of_the_head_and_weights_have_not():
    query, key = _normal(1, 1, 20, 3), _normal(1, 1, 20, 3)
    assert torch.linalg.matrix_rank(ExpDot().log(query, key)[0, 0]) == 3
    assert torch.linalg.matrix_rank(gkalib.attention_weights(3 * query, 3 * key, ExpDot())[0, 0]) == 20
    one = torch.linspace(-3, 3, 6, dtype=torch.float64)  # distinct numbers: the exponential has full rank
    assert torch.linalg.matrix_rank((one[:, None] * one).exp()) == 6


def test_no_matrix_of_the_rank_is_nearer_than_the_truncated_one():
    query, key = _normal(1, 1, 12, 4), _normal(1, 1, 12, 4)
    eye = torch.eye(12, dtype=torch.float64)[None, None]
    heads = Heads(query, key, eye)
    weights = gkalib.attention_weights(query, key, ExpDot())[0, 0]
    singular = torch.linalg.svdvals(weights)
    for rank in (1, 4, 9):
        best = best_of_rank(heads, Trial(rank, 0, heads, torch.Generator()))[0, 0]
        distance = (weights - best).square().sum()
        equal(distance, singular[rank:].square().sum())
        assert torch.linalg.matrix_rank(best) == rank
        for _ in range(20):  # any others: the best combination of some columns for every row
            basis = torch.linalg.qr(best.T[:, :rank] + 0.1 * _normal(12, rank))[0]
            assert (weights - weights @ basis @ basis.T).square().sum() >= distance


def test_the_error_of_a_random_projection():
    weights = gkalib.attention_weights(_normal(1, 1, 1, 4), _normal(1, 1, 10, 4), ExpDot())[0, 0, 0]
    value = _normal(10)
    rank, draws = 5, 200_000
    projections = _normal(draws, rank, 10) / rank**0.5
    found = ((projections @ weights) * (projections @ value)).sum(-1)
    exact = weights @ value
    variance = (weights.square().sum() * value.square().sum() + exact**2) / rank
    assert abs(found.mean() - exact) < 5 * (variance / draws).sqrt()
    assert abs(((found - exact) ** 2).mean() / variance - 1) < 0.05  # five standard errors of a variance


def test_landmarks_rebuild_a_matrix_of_their_rank():
    matrix = _normal(9, 3) @ _normal(3, 11)
    for chosen in (3, 5):  # as many as the rank, and more: then the block is singular
        rows, columns = torch.randperm(9)[:chosen], torch.randperm(11)[:chosen]
        block = matrix[rows][:, columns]
        rebuilt = matrix[:, columns] @ torch.linalg.pinv(block, rtol=1e-10) @ matrix[rows]
        assert (rebuilt - matrix).norm() < 1e-9 * matrix.norm()
    block = matrix[:3, :3]
    rebuilt = matrix[:, :3] @ pseudo_inverse(block) @ matrix[:3]
    assert (rebuilt - matrix).norm() < 1e-9 * matrix.norm()


def test_the_lift_errs_at_most_by_the_roots_of_its_diagonal():
    query, key = _normal(1, 1, 14, 3), _normal(1, 1, 14, 3)
    kernel, eye = Gaussian(1.3), torch.eye(28, dtype=torch.float64)[None, None]
    both = torch.cat([query, key], dim=2)
    for rank in (2, 6, 14):
        places = (torch.arange(rank // 2) + 0.5) / (rank // 2) * 14
        marks = torch.cat([query[:, :, places.long()], key[:, :, places.long()]], dim=2)
        middle = torch.linalg.inv(kernel(marks, marks))
        lifted = kernel(both, marks) @ middle @ kernel(marks, both)
        method = Skyformer(rank, ridge=0.0, iterations=None, sampling="spaced")
        corner = gkalib.smooth(
            query, key, eye[..., :14, :14], kernel, normalizer=Unnormalized(), method=method
        )
        assert (corner - lifted[..., :14, 14:]).norm() < 1e-9
        missing = 1 - lifted[0, 0].diagonal()
        assert missing.min() > -1e-9 and missing.max() < 1 + 1e-9
        error = (kernel(query, key) - corner)[0, 0].abs()
        bound = (missing[:14, None].clamp(min=0) * missing[14:].clamp(min=0)).sqrt()
        assert (error <= bound + 1e-9).all() and bound.max() > 0.01
