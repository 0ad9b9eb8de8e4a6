"""The estimators are the library's, the pairs are what they are said to be, and records hold both."""

import pytest
import torch

from chapters.experiments import estimators
from chapters.experiments.estimators import ARMS, NOISE, QUERIES, Pairs, draw
from gkalib import masks
from gkalib.kernels import Dot, ExpDot
from gkalib.normalizers import Unnormalized
from gkalib.smoothing import Memory, MemoryProblem, compute_output, make_problem, smooth
from tests.tolerance import oracle


def asked_last(pairs: Pairs, rule: str, **gates: torch.Tensor) -> torch.Tensor:
    """The library's memory, asked at the last token for every query in turn."""
    answers = []
    for query in pairs.query.unbind(1):
        asked = query[:, None, None].expand_as(pairs.key[:, None])
        slots = {"mask": masks.Causal(), "normalizer": Unnormalized()}
        problem = make_problem(asked, pairs.key[:, None], pairs.value[:, None], Dot(), **slots)
        out = compute_output(MemoryProblem.of(problem, **gates), Memory(rule, "recurrent"))
        answers.append(out[:, 0, -1])
    return torch.stack(answers, 1)


def test_memories_are_the_librarys():
    pairs = draw(4, 16, seed=3, draws=2)
    gate = torch.ones(2, 1, 16, dtype=torch.float64)
    decay, rate, ridge = gate * 0.9, gate * 0.2, gate[0, :, 0] * 0.5
    oracle(ARMS["linear"].answer(pairs), asked_last(pairs, "gated"))
    oracle(ARMS["retention"].answer(pairs, 0.9), asked_last(pairs, "gated", decay=decay.log()))
    oracle(ARMS["delta"].answer(pairs, 0.2), asked_last(pairs, "delta", rate=rate))
    gates = {"rate": rate, "decay": decay.log()}
    oracle(ARMS["gated-delta"].answer(pairs, 0.2, 0.9), asked_last(pairs, "delta", **gates))
    oracle(ARMS["ridge"].answer(pairs, 0.5), asked_last(pairs, "mesa", ridge=ridge))


def test_on_the_sphere_the_constant_is_softmax_attention():
    pairs = draw(4, 16, seed=3, draws=2)
    tensors = [each[:, None] for each in (pairs.query, pairs.key, pairs.value)]
    oracle(ARMS["constant"].answer(pairs, 0.5), smooth(*tensors, kernel=ExpDot(4.0))[:, 0])
    line = smooth(*tensors, kernel=ExpDot(4.0), degree=1, ridge=0.1)[:, 0]
    oracle(ARMS["line"].answer(pairs, 0.5, 0.1), line)


@pytest.mark.parametrize("edge", [False, True])
def test_pairs_are_unit_keys_with_noisy_values_of_mean_square_one(edge):
    pairs = draw(8, 64, seed=3, edge=edge)
    for points in (pairs.key, pairs.query):
        assert torch.allclose(points.norm(dim=-1), torch.ones(()).double())
    assert pairs.query.shape[1:] == (QUERIES, 8) and pairs.value.shape[2] == (1 if edge else 3)
    assert ((pairs.key[..., 0] > 0).all() and (pairs.query[..., 0] == 0).all()) == edge
    assert pairs.truth.square().mean((0, 1)) == pytest.approx(1, abs=0.1)
    assert not torch.equal(pairs.key, draw(8, 64, seed=4, edge=edge).key)


def test_of_linear_values_only_the_noise_is_left_and_a_switch_changes_the_map():
    pairs = draw(4, 256, seed=3)
    for column, rows in ((0, slice(None)), (2, slice(128)), (2, slice(128, None))):
        key, value = pairs.key[:, rows], pairs.value[:, rows, column, None]
        slopes = torch.linalg.lstsq(key, value).solution
        assert (key @ slopes - value).std().item() == pytest.approx(NOISE, rel=0.05)
        right = torch.allclose(pairs.query @ slopes, pairs.truth[..., column, None], atol=0.3)
        assert right == (column == 0 or rows.start == 128)


def test_settings_are_chosen_on_draws_that_the_error_leaves_out(monkeypatch):
    monkeypatch.setattr(estimators, "DIMENSIONS", (4,))
    monkeypatch.setattr(estimators, "LENGTHS", (16,))
    metrics, rows = estimators.measure("ridge", seed=5)
    assert [row["target"] for row in rows] == list(estimators.TARGETS)
    pairs = draw(4, 16, seed=5)
    best = min(
        ARMS["ridge"].settings[0], key=lambda one: _error(pairs, one, slice(estimators.CHOOSING)).mean()
    )
    assert rows[0]["setting"] == f"{best:g}"
    left = _error(pairs, best, slice(estimators.CHOOSING, None))
    assert metrics["error_linear_4_16"] == pytest.approx(left.mean().item())
    assert metrics["half_linear_4_16"] == pytest.approx(1.96 * left.std().item() / 160**0.5)


def _error(pairs: Pairs, setting: float, rows: slice) -> torch.Tensor:
    found = ARMS["ridge"].answer(pairs, setting)[rows, :, 0]
    return (found - pairs.truth[rows, :, 0]).square().mean(1)
