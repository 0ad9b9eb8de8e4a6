"""Every kernel of the lag beside every content that a form describes, in the fused operations."""

import pytest
import torch
from torch import Tensor

from gkalib.kernels import ALiBi, DecayingPeriodicBank, ExpDot, Gaussian, Kernel, Kerple, LagTable, T5Buckets
from gkalib.masks import Causal
from gkalib.smoothing import make_problem, smooth
from gkalib.smoothing.fused import _lag_row
from gkalib.smoothing.fused.configs import Config, forced
from gkalib.smoothing.fused.launch import LAUNCHES
from gkalib.smoothing.fused.plans import GRAIN
from tests.smoothing.fused.test_backward import FLOAT64
from tests.tolerance import oracle

LENGTH, HEADS = 21, 2
LAGS = {
    "table": lambda: LagTable(HEADS, LENGTH),
    "t5": lambda: T5Buckets(HEADS, num_buckets=8, max_distance=16),
    "alibi": lambda: ALiBi(HEADS),
    "kerple": lambda: Kerple(HEADS, power=0.8, rate=0.5),
    "bank": lambda: DecayingPeriodicBank(HEADS, 3, length=8.0, tau=(2.0, 6.0)),
    "two": lambda: LagTable(HEADS, LENGTH) * Kerple(HEADS),
}
CONTENTS = {"dot": ExpDot, "distance": lambda: Gaussian(1.3, learn=True), "one tensor": lambda: Gaussian(1.3)}


def gradients(kernel: Kernel, tensors: list[Tensor], causal: bool, method: str) -> list[Tensor]:
    """The output, the gradients of the tensors, and those of the kernel's parameters."""
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    mask = Causal() if causal else None
    out = smooth(*leaves, *([leaves[0]] * (3 - len(leaves))), kernel, mask=mask, method=method)
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
    parameters = [parameter for parameter in kernel.parameters() if parameter.requires_grad]
    return [out.detach(), *torch.autograd.grad(out, [*leaves, *parameters], weights)]


@FLOAT64
@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("lags", LAGS)
def test_values_and_gradients_are_the_references(lags: str, content: str):
    """Causal and both ways in turn."""
    causal = (list(CONTENTS).index(content) + list(LAGS).index(lags)) % 2 == 0
    kernel = (CONTENTS[content]() * LAGS[lags]()).double()
    for parameter in kernel.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    count = 1 if content == "one tensor" else 3
    tensors = [torch.randn(1, HEADS, LENGTH, 16, dtype=torch.float64) for _ in range(count)]
    before = LAUNCHES.copy()
    with forced(Config(16, 16)):
        actual = gradients(kernel, tensors, causal, "fused")
    assert (LAUNCHES - before)["smooth_forward_kernel"] == 1
    for fused, exact in zip(actual, gradients(kernel, tensors, causal, "reference"), strict=True):
        oracle(fused, exact)


@pytest.mark.parametrize("lags", LAGS)
@torch.no_grad()
def test_a_cache_that_grows_keeps_the_layout_of_its_lags(lags: str):
    """One query's row has the strides of 128 tokens, so that one launch plan serves them all."""
    kernel = (ExpDot() * LAGS[lags]()).double()
    query, cache = (torch.randn(1, HEADS, length, 16, dtype=torch.float64) for length in (1, LENGTH))
    before, strides = LAUNCHES.copy(), set()
    for keys in (1, LENGTH - 1, LENGTH):
        problem = make_problem(query, cache[:, :, :keys], None, kernel)
        row = _lag_row(problem, kernel.form(16))
        assert row is not None
        strides.add(row.stride()[1:])
        oracle(row, problem.lag_scores().squeeze(-2)[None])
        out = smooth(query, cache[:, :, :keys], None, kernel, method="fused")
        oracle(out, smooth(query, cache[:, :, :keys], None, kernel, method="reference"))
    assert (LAUNCHES - before)["decode_split_kernel"] == 3
    assert strides == {(GRAIN, 1)}
