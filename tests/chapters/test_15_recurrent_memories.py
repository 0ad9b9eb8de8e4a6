"""The labeled equations of chapter 15 that no test of the layers holds."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from gkalib.smoothing import Memory, State, compute_output
from tests.layers.test_memories import draw, gates, pairs, problem, state_of, within
from tests.tolerance import oracle

D, E = 8, 5


def one_pair() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A state, a key of length one, a value and a rate."""
    return draw(E, D), normalize(draw(D), dim=0), draw(E), torch.rand((), dtype=torch.float64)


def written(state: Tensor, key: Tensor, value: Tensor, rate: Tensor) -> Tensor:
    """The state after the library has read one pair more."""
    kept = State(1)
    kept.sums, kept.filled = (state[None, None],), 1
    asked = problem(*(each[None, None, None] for each in (key, key, value)), rate=rate.reshape(1, 1, 1))
    asked.state = kept
    compute_output(asked, Memory("delta"))
    return kept.sums[0][0, 0]


def test_the_delta_rule_is_a_step_of_gradient_descent():
    state, key, value, rate = one_pair()
    start = state.clone().requires_grad_()
    ((start @ key - value).square().sum() / 2).backward()
    assert start.grad is not None
    within(1e-14, written(state, key, value, rate), state - rate * start.grad)


def test_a_write_recalls_its_pair_and_leaves_what_is_orthogonal():
    state, key, value, _ = one_pair()
    after = written(state, key, value, torch.ones((), dtype=torch.float64))
    within(1e-14, after @ key, value)
    other = draw(D)
    other = other - (other @ key) * key
    within(1e-14, after @ other, state @ other)


@pytest.mark.parametrize(("length", "rate", "norm"), [(1.0, 0.5, 1.0), (1.0, 2.0, 1.0), (2.0, 1.5, 5.0)])
def test_the_norm_of_a_write(length, rate, norm):
    """As the library writes: what is left of a state when a value of zeros is written."""
    key = length * normalize(draw(D), dim=0)
    left = written(torch.eye(D).double(), key, draw(D) * 0, torch.tensor(rate).double())
    largest = torch.linalg.matrix_norm(left, 2)
    within(1e-13, largest, torch.tensor(norm).double())
    within(1e-13, largest, (1 - rate * key.square().sum()).abs().clamp(min=1))


def _chunk() -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """A state, and queries, keys, values and rates of one head."""
    query, key, value = (each[0, 0] for each in pairs())
    return draw(E, D), query, key, value, gates()["rate"][0, 0]


def test_what_a_chunk_writes_solves_a_triangular_system():
    state, _, key, value, rate = _chunk()
    before, rows = state, []
    for k, v, b in zip(key, value, rate, strict=True):
        rows.append(b * (v - before @ k))
        before = before + torch.outer(rows[-1], k)
    wrote = torch.stack(rows)
    system = torch.eye(len(key)) + (rate.diag() @ key @ key.T).tril(-1)
    oracle(system @ wrote, rate.diag() @ (value - key @ state.T))


def test_a_chunk_is_its_tokens_one_by_one():
    state, query, key, value, rate = _chunk()
    inverse = torch.linalg.inv(torch.eye(len(key)) + (rate.diag() @ key @ key.T).tril(-1)) @ rate.diag()
    after = state + (value - key @ state.T).T @ inverse.T @ key
    out = query @ state.T + (query @ key.T).tril() @ inverse @ (value - key @ state.T)
    kept = State(1)
    kept.sums, kept.filled = (state[None, None],), 1
    asked = problem(*(each[None, None] for each in (query, key, value)), rate=rate[None, None])
    asked.state = kept
    found = compute_output(asked, Memory("delta", "recurrent"))
    oracle(found[0, 0], out)
    oracle(kept.sums[0][0, 0], after)


def test_recursive_least_squares_let_the_ridge_fade():
    key = _chunk()[2]
    keep = torch.sigmoid(draw(len(key)) + 2)
    inverse, squares, ridge = torch.eye(D).double() / 0.5, torch.zeros(D, D).double(), 0.5
    for k, a in zip(key, keep, strict=True):
        along = inverse @ k
        inverse = (inverse - torch.outer(along, along) / (a + k @ along)) / a
        squares = a * squares + torch.outer(k, k)
    faded = squares + keep.prod() * ridge * torch.eye(D)
    within(1e-9, inverse @ faded, torch.eye(D).double())
    assert (inverse @ (squares + ridge * torch.eye(D)) - torch.eye(D)).abs().max() > 0.1


@pytest.mark.parametrize("count", [5, 33, 90])
def test_the_error_of_adding(count):
    """(n − 1)/d of the squared value, in the mean of 2,000 draws to three parts in a hundred."""
    key, value = normalize(draw(500, 4, count, 32), dim=-1), draw(500, 4, count, 1).sign()
    error = (state_of("gated", key, value) - value).square().mean()
    assert error == pytest.approx((count - 1) / 32, rel=0.03)


@pytest.mark.parametrize("count", [12, 48, 96])
def test_the_error_of_least_squares(count):
    """(1 − d/n)₊ of the squared value: Mesa with a small ridge, in the mean of 160 draws."""
    d, ridge = 24, torch.full((4,), 1e-6, dtype=torch.float64)
    key, value = normalize(draw(40, 4, count, d), dim=-1), draw(40, 4, count, 1)
    error = (state_of("mesa", key, value, ridge=ridge) - value).square().mean()
    assert error == pytest.approx(max(0, 1 - d / count), rel=0.05, abs=1e-6)


def test_what_later_writes_leave_of_a_map():
    """(1 − 1/d)^m in the mean of 2,000 draws, to a twentieth: the library's writes of zeros."""
    d, m = 16, 11
    key = normalize(draw(500, 4, m + 1, d), dim=-1)
    value = torch.zeros(500, 4, m + 1, 1, dtype=torch.float64)
    value[:, :, 0] = 1.0  # then S is the first key
    query = key[:, :, :1].expand_as(key)
    left = compute_output(problem(query, key, value), Memory("delta"))[:, :, -1].mean()
    assert left == pytest.approx((1 - 1 / d) ** m, rel=0.05)
