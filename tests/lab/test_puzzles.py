"""Gradients that are off are told before anything is compiled; what puzzles expect, solutions show."""

import pytest
import torch

import gkalib
from chapters.lab import puzzles
from chapters.lab.page import Compiled


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
