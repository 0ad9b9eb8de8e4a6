"""What puzzles expect, computed another way; that right kernels are told so, the chapters' solutions show."""

from types import SimpleNamespace

import pytest
import torch
from matplotlib.figure import Figure

from gkalib.gpu import puzzles
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
        names["then"]()
        (large,) = orders
        assert [type(one) for one in large] == [type(one) for one in arguments]
        shaped = [pair for pair in zip(arguments, large, strict=True) if isinstance(pair[1], torch.Tensor)]
        assert all(small.ndim == great.ndim for small, great in shaped)
        assert any(great.dtype == torch.bfloat16 for _, great in shaped)
        return arguments, grid, names["expected"]

    return of


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


def test_prepare(told):
    (grad, out, total, *_), grid, expected = told(puzzles.prepare)
    assert 16 * grid == len(out)
    equal(expected["g"], torch.diag(1 / total) @ grad)
    equal(expected["delta"], torch.einsum("nd,nd->n", expected["g"], out))


def test_order(told):
    given = torch.randn(4, 32, 16, dtype=torch.float64)
    (q, k, v, grad, half, *_), grid, expected = told(puzzles.order, *given)
    leaves = [one.clone().requires_grad_() for one in (q, k, v)]
    out = (0.125 * (leaves[0] @ leaves[1].mT - leaves[1].square().sum(-1) / 2)).softmax(-1) @ leaves[2]
    exact = torch.autograd.grad(out, leaves, grad)
    assert expected["parts"].shape == (grid, 32, 16) and torch.equal(half, k.square().sum(-1) / 2)
    for mine, right in zip((expected["parts"].sum(0), *list(expected.values())[1:]), exact, strict=True):
        equal(mine, right)
    with pytest.raises(ValueError, match=r"queries \[30, 16\] fill none"):
        puzzles.order(None, *given[:, :30])


def test_diagonals(told):
    (ds, slices, m), grid, expected = told(puzzles.diagonals)
    assert ds.shape == (16 * grid, m) and slices.shape == (grid, m + 16)
    # Offsets of torch's diagonals grow to the right, lags of query minus key to the left.
    for rows, own in zip(ds.split(16), expected["slices"], strict=True):
        equal(own, torch.stack([rows.diagonal(-lag).sum() for lag in range(-m, 16)]))


def test_image(told):
    (table, out), grid, expected = told(puzzles.image)
    n = puzzles.H * puzzles.W
    assert 16 * grid == n and out.shape == (n, n)
    for i in range(n):
        for j in range(n):
            (y, x), (other_y, other_x) = divmod(i, puzzles.W), divmod(j, puzzles.W)
            bias = table[y - other_y + puzzles.H - 1, x - other_x + puzzles.W - 1]
            assert expected["out"][i, j] == bias


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
