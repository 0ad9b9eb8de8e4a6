"""What the helpers of the Triton chapters refuse, in their words."""

import pytest
import torch

from chapters.lab import pictures
from chapters.lab.exact import forces, one_tensor, three_tensors
from chapters.lab.watch import attempt, picture
from gkalib.smoothing.fused.launch import interpreting
from tests.lab import page_kernels as kernels

pytestmark = pytest.mark.skipif(not interpreting(), reason="Triton's interpreter is off")
X, HEADS = torch.ones(12, 5).double(), torch.ones(3, 1, 48, 16).double()
ONE = {"sigma": 1.0, "causal": False}
REFUSALS = {
    r"one size, not \[\[12, 5\], \[12, 5\], \[12, 5\], \[11, 5\]\]": lambda: three_tensors(
        X, X, X, X[:11], scale=1.0, causal=False
    ),
    r"one size, not \[\[12, 5\], \[12\]\]": lambda: one_tensor(X, X[:, 0], **ONE),
    "of one size": lambda: forces(X, X[:3], **ONE),
    r"one head are \[n d\], not \[1, 48, 16\]": lambda: pictures.forward_reads(*HEADS),
    r"1 to 24 tokens, not \[0, 25\]": lambda: pictures.cache_reads([0, 25], places=24),
    r"one head are \[n d\], not \[2, 32, 16\]": lambda: pictures.centering(torch.zeros(2, 32, 16)),
    r"positive, not \[0\]": lambda: pictures.slice_memory([0]),
    "attempt: y is no tensor among x, out": lambda: attempt(
        kernels.norms_kernel, 3, X, X[:, 0], 12, expected={"y": X}, B=16, D=16
    ),
    "name the tensors": lambda: picture([]),
}


@pytest.mark.parametrize("said", REFUSALS)
def test_what_cannot_be_run_is_refused(said):
    with pytest.raises(ValueError, match=said):
        REFUSALS[said]()
