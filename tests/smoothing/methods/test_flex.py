"""FlexAttention, which compiles for every case: a dozen here, the rest on a GPU."""

import os
import subprocess
import sys

import pytest
import torch

import gkalib
from gkalib import kernels
from tests.cases import HEADS, MASKS, SIGMAS
from tests.tolerance import agree

# torch's tracer warns of functions of torch that it cannot trace, once a process.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace:UserWarning"),
]

CASES = [
    ("gaussian", "none", (17, 17)),
    ("gaussian", "causal", (17, 63)),
    ("gaussian", "causal-window", (63, 63)),
    ("gaussian", "padding", (17, 17)),
    ("gaussian", "document", (63, 63)),
    ("gaussian", "pairs", (17, 63)),
    ("expdot", "causal", (63, 63)),
    ("product-with-bank", "none", (17, 63)),
    ("product-with-bank", "causal", (63, 63)),
    ("gaussian", "causal-window", (150, 390)),
    ("product-with-bank", "document", (300, 300)),
]


@pytest.fixture(autouse=True)
def _forgotten():
    """Without it the ninth shape of a process would go to PyTorch's slow path, which warns."""
    torch._dynamo.reset()


def _kernel(name: str) -> kernels.Kernel:
    if name == "gaussian":
        return kernels.Gaussian(SIGMAS.float())
    if name == "expdot":
        return kernels.ExpDot()
    return kernels.Gaussian(2.0) * kernels.DecayingPeriodicBank(
        HEADS, 5, sigma=0.5, length=20.0, tau=(2.0, 9.0)
    )


MORE_THREADS = """
import torch, gkalib
x, kernel = torch.randn(1, 2, 20, 16), gkalib.kernels.Gaussian(2.0)
for threads in (1, 2):
    torch.set_num_threads(threads)
    for _ in range(20):
        with torch.no_grad():
            out, exact = (gkalib.smooth(x, x, x, kernel, method=name) for name in ("flex", "reference"))
            assert (out - exact).abs().max() < 1e-5
"""


def test_more_threads_than_it_was_compiled_for(tmp_path):
    """In a process of its own: with buffers for one thread the second writes past them, and it ends."""
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", MORE_THREADS]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_inside_a_compiled_function_a_cpu_is_refused():
    """There the code would be kept on disk under a key without its number of threads."""
    x = torch.randn(1, 2, 20, 16)
    compiled = torch.compile(
        lambda x: gkalib.smooth(x, x, x, kernels.Gaussian(2.0), method="flex"), backend="eager"
    )
    with torch.no_grad(), pytest.raises(ValueError, match="inside torch"):
        compiled(x)


@torch.no_grad()
def test_one_tensor():
    x = torch.randn(2, HEADS, 17, 16)
    same = gkalib.smooth(x, x, x, kernels.Gaussian(2.0), method="reference")
    exact = gkalib.smooth(x.double(), x.double(), x.double(), kernels.Gaussian(2.0), method="reference")
    agree(gkalib.smooth(x, x, x, kernels.Gaussian(2.0), method="flex"), exact, same)


@pytest.mark.parametrize(("name", "mask", "lengths"), CASES)
@torch.no_grad()
def test_flex_agrees_with_reference(name, mask, lengths):
    n, m = lengths
    query, key, value = torch.randn(2, HEADS, n, 16), torch.randn(2, 2, m, 16), torch.randn(2, 2, m, 24)
    kernel, slots = _kernel(name), {"mask": MASKS[mask](2, n, m)}
    actual = gkalib.smooth(query, key, value, kernel, method="flex", **slots)
    same = gkalib.smooth(query, key, value, kernel, method="reference", **slots)
    exact = gkalib.smooth(
        query.double(), key.double(), value.double(), _kernel(name).double(), method="reference", **slots
    )
    agree(actual, exact, same)


@torch.no_grad()
def test_a_bias_a_function_and_a_table_of_lags_in_one():
    query, key, value = torch.randn(2, HEADS, 17, 16), torch.randn(2, 2, 40, 16), torch.randn(2, 2, 40, 24)
    kernel = kernels.ExpDot() * kernels.T5Buckets(HEADS)
    torch.nn.init.normal_(kernel.second.bias)
    slots = {"mask": lambda b, h, q, k: (q - k).abs() % 3 < 2, "bias": torch.randn(HEADS, 1, 40)}
    actual = gkalib.smooth(query, key, value, kernel, method="flex", **slots)
    same = gkalib.smooth(query, key, value, kernel, method="reference", **slots)
    exact = gkalib.smooth(
        query.double(), key.double(), value.double(), kernel.double(), method="reference", **slots
    )
    agree(actual, exact, same)
