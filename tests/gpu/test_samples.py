"""What the sample calls compute is finite and not nothing, and the same with other block sizes."""

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from gkalib.gpu.samples import CALLS, Call, Sample, prepared
from gkalib.smoothing.fused.configs import Config, forced

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="the calls are sized for the interpreter")


def computed(call: Call) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(call()) if isinstance(leaf, Tensor)]


@pytest.mark.parametrize("width", [16, 256])
@pytest.mark.parametrize("name", CALLS)
def test_results_are_finite_and_not_zero_and_other_blocks_give_the_same(
    name: str, width: int, monkeypatch: pytest.MonkeyPatch
):
    torch.manual_seed(0)
    monkeypatch.setattr(Sample, "_fill", lambda self, empty: empty.normal_(std=0.5).abs_().add_(0.1))
    call = prepared(Sample(name, width, torch.float32, length=40, batch=1, heads=2))
    results = computed(call)
    for one in filter(Tensor.numel, results):
        assert one.isfinite().all() and one.abs().max() > 1e-4
    with forced(Config(16, 16)):
        for other, one in zip(computed(call), results, strict=True):
            assert (other - one).norm() <= 1e-3 * one.norm()
