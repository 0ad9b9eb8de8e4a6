"""Fused operations ask no device for a number, so that a CUDA graph can hold them."""

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.utils._python_dispatch import TorchDispatchMode

import gkalib
from gkalib import kernels, masks
from gkalib.smoothing import make_problem
from gkalib.smoothing.fused.launch import collected
from gkalib.smoothing.spans import spans_of, why_not


class NoNumbers(TorchDispatchMode):
    """Within it no tensor gives a number to Python, which on a device would wait for it."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten._local_scalar_dense.default:
            raise AssertionError("a tensor was asked for a number")
        return function(*args, **(kwargs or {}))


def test_the_mode_notices():
    with NoNumbers(), pytest.raises(AssertionError, match="asked for a number"):
        bool(torch.ones(()))


@pytest.mark.parametrize("mask", ["ids", "lengths"])
def test_documents_are_looked_at_when_the_mask_is_made(mask: str):
    ids = torch.tensor([[0] * 9 + [1] * 11, [4] * 13 + [0] * 7])
    made = masks.Document(ids) if mask == "ids" else masks.Document.of_lengths([9, 11])
    x = torch.randn(2, 1, 20, 16)
    with NoNumbers():
        problem = make_problem(x, None, None, kernels.Gaussian(1.0), mask=masks.Causal() & made)
        assert why_not(problem) is None
        spans_of(problem)


def test_documents_on_a_device_while_a_graph_is_captured(monkeypatch: pytest.MonkeyPatch):
    """What would have to wait is asserted on the device instead."""
    with FakeTensorMode():
        first, second = (masks.Document(torch.zeros(8, dtype=torch.long, device="cuda:0")) for _ in range(2))
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
        with pytest.raises(DataDependentOutputException):
            first.packed()
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        assert second.packed()


BANK = kernels.DecayingPeriodicBank(2, 3)
LAGS = {
    "bank": BANK,
    "content and bank": kernels.ExpDot() * BANK,
    "two": kernels.Gaussian(1.0) * BANK * kernels.ALiBi(2),
}


@pytest.mark.parametrize("kernel", LAGS)
@pytest.mark.parametrize("batched", [False, True])
@torch.no_grad()
def test_lags_of_one_query_with_a_position(kernel: str, batched: bool):
    """The same as from a table that is long enough, and no number read."""
    query, key = torch.randn(2, 2, 1, 8), torch.randn(2, 2, 5, 8)
    at, keys = torch.tensor([7]), torch.tensor([6, 7, 3, 4, 5])
    if batched:
        at, keys = torch.stack([at, at + 2]), torch.stack([keys, keys.flip(0)])
    problem = make_problem(query, key, key, LAGS[kernel], positions=(at, keys))
    with NoNumbers():
        scores = problem.lag_scores()
    table, zero = problem.lag_table()
    wanted = table[:, problem.lag() + zero]
    wanted = wanted.transpose(0, 1) if batched else wanted[None]
    torch.testing.assert_close(scores, wanted)


@pytest.mark.usefixtures("unread")
@torch.no_grad()
def test_a_step_of_decoding_from_a_ring():
    """All that is done before its programs start."""
    query, key = torch.randn(1, 2, 1, 8), torch.randn(1, 2, 4, 8)
    positions = torch.tensor([7]), torch.tensor([4, 5, 6, 7])
    slots = {"mask": masks.Causal() & masks.Window(4), "positions": positions}
    with collected() as launches, NoNumbers():
        gkalib.smooth(query, key, key, LAGS["content and bank"], method="fused", **slots)
    names = [launch.name for launch in launches]
    assert names == ["bank_table_kernel", "decode_split_kernel", "decode_combine_kernel"]
