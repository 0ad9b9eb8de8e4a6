"""Where a key's number goes with a gradient: a mask of one row up to `FEW` keys, a column beyond them."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gkalib.kernels import Gaussian
from gkalib.smoothing import smooth
from gkalib.smoothing.methods.padded import FEW
from tests.tolerance import agree

FLASH = "_scaled_dot_product_flash_attention_for_cpu"


class Calls(TorchDispatchMode):
    """The names of the operations that run."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Note the name, then call."""
        self.names.append(func.name().removeprefix("aten::").partition(".")[0])
        return func(*args, **(kwargs or {}))


def _with_gradients(x, sigma, method):
    out = smooth(x, kernel=Gaussian(sigma), method=method)
    return [out, *torch.autograd.grad(out.square().mean(), (x, sigma))]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("keys", "column"), [(FEW, False), (FEW + 1, True)])
def test_either_side_of_few_keys_gives_output_and_gradients(seed, keys, column):
    torch.manual_seed(seed)
    x = torch.randn(1, 2, keys, 6, dtype=torch.float64, requires_grad=True)
    sigma = torch.tensor([2.0, 3.0], dtype=torch.float64, requires_grad=True)
    with Calls() as calls:
        have = _with_gradients(x, sigma, "padded")
    assert (FLASH in calls.names) == column
    want = _with_gradients(x, sigma, "reference")
    for actual, exact in zip(have, want, strict=True):
        agree(actual.detach(), exact.detach(), exact.detach())
