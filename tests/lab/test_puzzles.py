"""What puzzles expect, computed another way; that right kernels are told so, the chapters' solutions show."""

from types import SimpleNamespace

import pytest
import torch
from matplotlib.figure import Figure

import gkalib
from chapters.lab import puzzles
from chapters.lab.page import Compiled
from tests.tolerance import equal


@pytest.fixture
def told(monkeypatch):
    """What a puzzle hands to ``attempt``: its tensors, how many instances, and what is expected.

    What it has compiled are arguments of the same types.
    """
    orders = []

    def compiled(_, *arguments, **how):
        orders.append(arguments)
        return SimpleNamespace(report=SimpleNamespace(registers=128, spills=0))

    monkeypatch.setattr(puzzles, "compiled", compiled)

    def of(puzzle, *given):
        calls = []

        def attempt(*words, **names):
            calls.append((words, names))
            return Figure()

        monkeypatch.setattr(puzzles, "attempt", attempt)
        puzzle(None, *given)
        ((_, grid, *arguments), names) = calls[0]
        if "then" not in names:
            return arguments, grid, names["expected"]
        names["then"]()
        (large,) = orders
        assert [type(one) for one in large] == [type(one) for one in arguments]
        shaped = [pair for pair in zip(arguments, large, strict=True) if isinstance(pair[1], torch.Tensor)]
        assert all(small.ndim == great.ndim for small, great in shaped)
        assert any(great.dtype == torch.bfloat16 for _, great in shaped)
        return arguments, grid, names["expected"]

    return of


def test_the_first_ones(told):
    (x, _, n), grid, expected = told(puzzles.twice)
    assert n == len(x) and 16 * (grid - 1) < n < 16 * grid
    equal(expected["out"], x + x)
    (x, _, m), grid, expected = told(puzzles.long_sum)
    assert (grid, m) == x.shape and m % 16
    equal(expected["out"], x @ torch.ones(m, dtype=x.dtype))
    (scores, value, _, m), grid, expected = told(puzzles.online)
    assert (grid, m) == scores.shape and m % 16 and scores.max().exp().isinf()
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    equal(expected["out"], (weights * value).sum(-1) / weights.sum(-1))


def test_norms(told):
    (x, _, *size), grid, expected = told(puzzles.norms)
    assert size == list(x.shape) and 16 * (grid - 1) < size[0] <= 16 * grid
    equal(expected["out"], torch.linalg.vector_norm(x, dim=1) ** 2)


def test_sums(told):
    (q, k, v, half, _, scale, m), grid, expected = told(puzzles.sums)
    assert len(k) == m and 16 * grid == len(q)
    equal(half, (k * k).sum(1) / 2)
    weights = torch.exp(scale * (q @ k.mT - half - q.square().sum(-1, keepdim=True) / 2))
    equal(expected["out"], weights @ v)


def test_order(told):
    (q, k, v, grad, half, *_), grid, expected = told(puzzles.order)
    leaves = [one.clone().requires_grad_() for one in (q, k, v)]
    out = (0.125 * (leaves[0] @ leaves[1].mT - leaves[1].square().sum(-1) / 2)).softmax(-1) @ leaves[2]
    exact = torch.autograd.grad(out, leaves, grad)
    assert expected["parts"].shape == (grid, len(q), 16) and torch.equal(half, k.square().sum(-1) / 2)
    for mine, right in zip((expected["parts"].sum(0), *list(expected.values())[1:]), exact, strict=True):
        equal(mine, right)


class Given:
    """In the place of a kernel: writes gradients of the reference method, and may be off."""

    def __init__(self, *which, off=0.0):
        self.which, self.off = which, off

    def __getitem__(self, grid):
        def run(*arguments, CAUSAL, B, D):
            *arguments, n = arguments
            inputs, outs = arguments[: -len(self.which)], arguments[-len(self.which) :]
            roles = inputs[: 3 if len(inputs) > 5 else 1]
            leaves = [one.clone()[None, None].requires_grad_() for one in roles]
            grad = inputs[3] if len(leaves) == 3 else self.grad
            sigma = inputs[-1].item() ** -0.5
            roles = leaves if len(leaves) == 3 else leaves * 3
            mask = gkalib.masks.Causal() if CAUSAL else None
            out = gkalib.smooth(*roles, gkalib.kernels.Gaussian(sigma), mask=mask, method="reference")
            exact = torch.autograd.grad(out, leaves, grad[None, None])
            assert grid == (n // B,) and outs[0].shape[-1] == D
            for place, at in zip(outs, self.which, strict=True):
                place.copy_(exact[at][0, 0] + self.off)

        return run


@pytest.mark.parametrize("causal", [False, True])
def test_the_kernels_of_the_chapter_are_judged_before_they_are_compiled(monkeypatch, causal):
    orders = []

    def compiled(*given, **how):
        orders.append((given, how))
        return Compiled.__new__(Compiled)

    monkeypatch.setattr(puzzles, "compiled", compiled)
    puzzles.three(Given(0), Given(1, 2), causal=causal)
    x, grad = torch.randn(2, 32, 16, dtype=torch.float64)
    token = Given(0)
    token.grad = grad
    puzzles.one(token, x, grad, sigma=3.0, causal=causal)
    names = [set(how["expected"]) for _, how in orders]
    assert names == [{"grad_query"}, {"grad_key", "grad_value"}, {"grad"}]
    assert all(given[1].dtype == torch.bfloat16 and how["CAUSAL"] == causal for given, how in orders)
    with pytest.raises(ValueError, match=r"grad_key differs from autograd's by 1e-03"):
        puzzles.three(Given(0), Given(1, 2, off=1e-3), causal=causal)
    for off in (1e-3, float("nan")):
        token.off = off
        with pytest.raises(ValueError, match="grad differs"):
            puzzles.one(token, x, grad, sigma=3.0, causal=causal)


def test_coefficients(told):
    (q, k, grad, _, scale, n), grid, expected = told(puzzles.coefficients)
    assert grid == 3 * n // 16
    scores, leaf = scale * q @ k.mT, torch.zeros(6, n, 16, dtype=torch.float64, requires_grad=True)
    waves = [*((g * scores).cos() for g in (1, 2, 3)), *((g * scores).sin() for g in (1, 2, 3))]
    features = sum(wave @ part for wave, part in zip(waves, leaf, strict=True))
    (exact,) = torch.autograd.grad(features, leaf, grad)
    equal(expected["grad_coefficients"], exact)


def test_merging(capsys):
    def merge(first, second):
        log = torch.logaddexp(first[0], second[0])
        return log, sum((one - log).exp() * out for one, out in (first, second))

    zeros = torch.zeros(16).double()
    for log in (-1e38, 1e38):  # no weight, and all of it
        puzzles.merging(merge, (torch.tensor(log).double(), zeros))
    assert capsys.readouterr().out.splitlines() == ["right", "3 of 3 divisions are wrong"]


def test_ragged(told):
    (query, cache, scale, lengths, _, places, window), grid, expected = told(puzzles.ragged)
    assert cache.shape == (grid, places, 16)
    for b, length in enumerate(lengths):
        seen = cache[b].isfinite().all(1).nonzero()[:, 0]
        assert seen.tolist() == list(range(max(0, length - window), length))
        assert torch.equal(query[b], cache[b, length - 1])
        row = cache[b][seen]
        weights = torch.exp(-scale / 2 * torch.cdist(query[b : b + 1], row).square())
        equal(expected["out"][b], (weights @ row / weights.sum())[0])
