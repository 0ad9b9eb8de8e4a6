"""The rank experiment on rows of known rank."""

import pytest
import torch

from chapters.experiments import karat_rank
from gkalib.data import trained_vit
from gkalib.normalizers import Fourier, RowOperator

F64 = torch.float64


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(karat_rank, "RANKS", (1, 2, 3, 8))


def test_own_matrices_need_their_rank_and_a_shared_space_the_rank_of_all(small):
    bases = torch.linalg.qr(torch.randn(4, 8, 2, dtype=F64)).Q
    pictures = torch.randn(4, 30, 2, dtype=F64) @ bases.mT
    own = karat_rank.of_each_picture(pictures)
    shared = karat_rank.of_all_pictures(pictures, pictures)
    assert own[2] < 1e-6 < own[1]
    assert shared[3] > 0.1
    assert shared[8] < 1e-6
    assert all(shared[r] >= own[r] - 1e-9 for r in own)


def test_the_regression_recovers_an_operator_of_rank_two(small):
    operator = RowOperator(1, 8, basis=Fourier(karat_rank.HARMONICS), rank=2, dtype=F64)
    scores = [torch.randn(6, 60, 8, dtype=F64), torch.randn(3, 60, 8, dtype=F64)]
    with torch.no_grad():
        weights = [operator(one[:, None])[:, 0] for one in scores]
    errors, on_training = karat_rank.operator(scores, weights)
    assert errors[2] < 0.01 < errors[1]
    assert on_training[2] < 0.01 < on_training[1]


def test_centered_scores_do_not_know_what_was_added_to_their_rows():
    training, held_out = torch.randn(3, 5, 8, dtype=F64), 2 * torch.randn(2, 5, 8, dtype=F64)
    shifted = [scores + 50 * torch.randn(*scores.shape[:2], 1, dtype=F64) for scores in (training, held_out)]
    for plain, moved in zip(
        karat_rank.centered(training, held_out), karat_rank.centered(*shifted), strict=True
    ):
        torch.testing.assert_close(plain, moved)
    first, second = karat_rank.centered(training, held_out)
    assert first.std().item() == pytest.approx(1) and second.std() > 1.5


def test_the_spectrum_counts_directions(small):
    matrix = torch.diag(torch.tensor([4.0, 2.0, 1.0, 0.0], dtype=F64))[None]
    curve, count = karat_rank.spectrum(matrix)
    assert curve.tolist() == pytest.approx([1, 0.5, 0.25, 0])
    assert count.item() == 2, "16 + 4 of 21 are the first nine tenths"


@pytest.mark.data("trained_vit")
def test_rows_of_the_trained_transformer():
    pytest.importorskip("onnx", reason="reads the pretrained model")
    images = karat_rank.crops(("cat",), 1)
    assert images.shape == (1, 3, 196, 196)
    first, last = karat_rank.vit_heads(trained_vit(), images, (1, 3))
    assert first.query.shape == last.value.shape == (1, 6, 197, 64)
    scores = first.query @ first.key.mT / 8
    assert 2 < scores.std() < 40, "trained scores are not small"
