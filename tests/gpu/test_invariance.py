"""What must not change a result: rehearsed in the interpreter, where there is one stream and no graph."""

import pytest
import torch

from gkalib import results
from gkalib.gpu import invariance
from gkalib.gpu.invariance import Posed
from gkalib.gpu.operations import OPERATIONS

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="on a card the queue runs them, at full size"
)


@pytest.fixture
def store(tmp_path, monkeypatch):
    """An empty store of results."""
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path))


@pytest.mark.parametrize("operation", invariance.OPERATIONS)
def test_the_same_problem_put_differently_gives_the_same(operation, store):
    rows = invariance.run(operation, "bfloat16", device="cpu")
    ways = {row["way"] for row in rows}
    assert ways == {"repeated", "offset", "padded rows"}
    assert all(row["right"] for row in rows), rows
    assert all(row["same"] for row in rows if row["way"] == "repeated")
    quantities = {row["what"] for row in rows}
    assert "out" in quantities and ("query" in quantities) == OPERATIONS[operation].gradients
    (record,) = results.load("correctness")
    assert record.arm == f"invariance-{operation}-float32" and record.metrics["wrong"] == 0
    assert record.metrics["cases"] == 3 and record.scale == "smoke"


@pytest.mark.parametrize("way", ["repeated", "elsewhere"])
def test_what_depends_on_the_call_or_the_address_is_found(way, store, monkeypatch, capsys):
    real, calls = Posed.__call__, []

    def wrong(self, tensors=None):
        calls.append(tensors)
        found = real(self, tensors)
        off = len(calls) == 2 if way == "repeated" else tensors is not None
        return {name: value * (1.01 if off else 1.0) for name, value in found.items()}

    monkeypatch.setattr(Posed, "__call__", wrong)
    rows = invariance.run("gka", "bfloat16", device="cpu")
    named = {"repeated": {"repeated"}, "elsewhere": {"offset", "padded rows"}}[way]
    assert {row["way"] for row in rows if not row["right"]} == named
    assert "wrong" not in capsys.readouterr().err and results.load("correctness")[0].metrics["wrong"] > 0


def test_what_raises_is_a_row_and_the_other_ways_go_on(store, monkeypatch):
    real = Posed.__call__

    def refuses(self, tensors=None):
        if tensors is not None:
            raise RuntimeError("misaligned address")
        return real(self, tensors)

    monkeypatch.setattr(Posed, "__call__", refuses)
    rows = invariance.run("decode", "bfloat16", device="cpu")
    assert [(row["way"], row["right"]) for row in rows] == [("repeated", 1), ("elsewhere", 0)]
    assert rows[-1]["reason"] == "RuntimeError: misaligned address"


def test_views_begin_and_lie_where_no_load_of_sixteen_bytes_can():
    tensor = torch.randn(2, 9, 3, 16).transpose(1, 2)
    offset, spread = invariance._offset(tensor), invariance._spread(tensor)
    assert torch.equal(offset, tensor) and torch.equal(spread, tensor)
    assert offset.data_ptr() % 16 == 4 and offset.stride() == tensor.stride()
    assert spread.stride()[-2] == 3 * 17 and spread.stride()[1] == 17 and spread.stride()[-1] == 1


def test_the_last_sequences_of_a_large_tensor_are_as_they_are_alone(store, monkeypatch):
    rows = invariance.large(device="cpu")
    assert all(row["right"] for row in rows), rows
    assert {row["way"] for row in rows} == {
        f"large {name}" for name in ("gka", "rbf", "gpa", "karat", "decode")
    }
    heads, _, _, keys, width = invariance.FAR["cpu"][""]
    assert invariance.COUNTED["cpu"] // (heads * keys * width) + 1 >= 3, "more than the two that are compared"
    for groups, keys, width in ((8, 64, 64), (8, 4096, 64)):
        batch = 2**31 // (groups * keys * width) + 1
        assert batch * groups * keys * width > 2**31
    real = Posed.__call__

    def overflows(self, tensors=None):
        found = real(self, tensors)
        if len(self.grad) > 2:
            found["out"] = torch.cat([found["out"][:-1], found["out"][:1]])
        return found

    monkeypatch.setattr(Posed, "__call__", overflows)
    monkeypatch.setattr(invariance, "LARGE", ("gka",))
    assert [row["what"] for row in invariance.large(device="cpu") if not row["right"]] == ["out"]


def test_races_are_counted_where_the_sanitizer_is(store, capsys):
    said = "========= RACECHECK SUMMARY: 3 hazards displayed (1 error, 2 warnings)\n"
    assert invariance.hazards(said) == {"ran": 1.0, "hazards": 3.0, "errors": 1.0}
    assert invariance.hazards("Device not supported") == {"ran": 0.0}
    assert invariance.races(device="cpu") == {"ran": 0.0}
    assert "races were not looked for" in capsys.readouterr().out
    assert results.load("correctness")[0].metrics == {"ran": 0.0}


def test_what_races_looks_at_runs(monkeypatch):
    from gkalib.smoothing.fused.launch import LAUNCHES

    LAUNCHES.clear()
    monkeypatch.setattr(invariance, "LENGTH", 20)
    invariance.small("cpu")
    assert LAUNCHES["gka_backward_head_kernel"] == 1 and LAUNCHES["smooth_backward_query_kernel"] == 1
