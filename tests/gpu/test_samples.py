"""What the sample calls compute: block sizes are compared by it, so it has to be finite and not nothing."""

import pytest
import torch

from gkalib.gpu import tune
from gkalib.gpu.samples import CALLS, Sample, prepared
from gkalib.smoothing.fused.configs import Config, forced

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="the calls are sized for the interpreter; a card compares when it tunes"
)


@pytest.mark.parametrize("width", [16, 256])
@pytest.mark.parametrize("name", CALLS)
def test_results_are_finite_and_not_zero_and_other_blocks_give_the_same(
    name: str, width: int, monkeypatch: pytest.MonkeyPatch
):
    torch.manual_seed(0)
    monkeypatch.setattr(Sample, "_fill", lambda self, empty: empty.normal_(std=0.5).abs_().add_(0.1))
    call = prepared(Sample(name, width, torch.float32, length=40, batch=1, heads=2))
    results = tune._computed(call)
    for one in filter(torch.Tensor.numel, results):
        assert one.isfinite().all() and one.abs().max() > 1e-4
    with forced(Config(16, 16)):
        tune._compare(tune._computed(call), results, torch.float32)
