"""What is checked on a device: every mask, type and size, and that a wrong result would be seen."""

import pkgutil
from importlib import import_module

import pytest
import torch

from gkalib import results
from gkalib.gpu import correctness
from gkalib.gpu.jobs import jobs
from gkalib.gpu.operations import MASKS, OPERATIONS, Check
from gkalib.smoothing import fused
from gkalib.smoothing.fused.launch import LAUNCHES


@pytest.fixture
def store(tmp_path, monkeypatch):
    """An empty store of results."""
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path))
    return tmp_path


def _first_cases(monkeypatch, *checks: Check) -> None:
    monkeypatch.setattr(correctness, "checks", lambda operation, device, types: iter(checks))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_mask_and_size_occurs_in_every_type(operation, device):
    kind, every = OPERATIONS[operation], list(correctness.checks(operation, device))
    types = correctness.DTYPES[device][: 2 if kind.halves and device == "cuda" else None]
    assert {case.dtype for case in every} == set(types)
    assert len(every) == len(set(every))
    sizes = kind.sizes if kind.sizes and device == "cuda" else correctness.SIZES[device]
    for dtype in types:
        alone = list(correctness.checks(operation, device, [dtype]))
        assert alone == [case for case in every if case.dtype == dtype]
        for spread in kind.spreads:
            cases = [case for case in alone if case.spread == spread]
            assert {case.mask for case in cases} == set(kind.masks[: None if spread == 1 else 2])
            assert {(case.batch, case.width) for case in cases} == {(size[0], size[5]) for size in sizes}
        if device == "cuda" and kind.halves:
            assert {case.keys % 16 == 0 for case in alone} == {True, False}


def _programs() -> set[str]:
    """Every program of the fused operations, by its name."""
    modules = [
        import_module(f"{fused.__name__}.{each.name}") for each in pkgutil.iter_modules(fused.__path__)
    ]
    return {name for module in modules for name in vars(module) if name.endswith("_kernel")}


@pytest.mark.skipif(torch.cuda.is_available(), reason="these cases are sized for the interpreter")
def test_every_program_is_one_that_some_operation_runs():
    LAUNCHES.clear()
    for operation in OPERATIONS:
        case = next(case for case in correctness.checks(operation, "cpu") if case.dtype == "float64")
        assert all(row["right"] for row in correctness.compare(operation, case, torch.Generator()))
    assert set(LAUNCHES) == _programs()


def test_each_type_has_a_job_on_a_card_and_warp_specialized_programs_come_last():
    actual = [job for job in jobs() if job.name.startswith("correctness-")]
    on_card = [job.name for job in actual if "cuda" in job.devices]
    assert on_card[-2:] == ["correctness-gka-specialized-bfloat16", "correctness-gka-specialized-float16"]
    halves = sum(kind.halves for kind in OPERATIONS.values())
    assert len(on_card) == 2 * halves + 3 * (len(OPERATIONS) - halves)
    last = sorted(OPERATIONS, key=lambda name: name == "gka-specialized")
    assert [job.name for job in actual if "cpu" in job.devices] == [f"correctness-{name}" for name in last]
    assert not any(job.alone for job in actual)


@pytest.mark.skipif(torch.cuda.is_available(), reason="these cases are sized for the interpreter")
def test_a_first_look_is_one_check_under_a_name_that_ships_nothing(store):
    rows = correctness.run("gka-specialized", ["float32"], most=1, device="cpu")
    (record,) = results.load("correctness")
    assert record.arm == "first-gka-specialized-float32" and record.metrics["cases"] == 1 and len(rows) == 3


def test_masks_of_a_case_are_what_they_are_called():
    case = Check(batch=2, heads=1, groups=1, queries=12, keys=15, width=16, value_width=16)
    for name, make in MASKS.items():
        mask = make(case, torch.device("cpu"))
        assert (mask is None) == (name == "all")
        if mask is not None:
            mask.check(2, 1, 12, 15)


@pytest.mark.skipif(torch.cuda.is_available(), reason="these cases are sized for the interpreter")
@pytest.mark.parametrize("operation", ["gka-specialized", "gka", "gpa", "karat"])
def test_an_operation_is_right_and_its_record_says_so(operation, store, monkeypatch, capsys):
    case = next(case for case in correctness.checks(operation, "cpu") if case.dtype == "float64")
    _first_cases(monkeypatch, case)
    LAUNCHES.clear()
    rows = correctness.run(operation, device="cpu")
    special = {name for name in LAUNCHES if "specialized" in name}
    assert len(special) == (2 if operation == "gka-specialized" else 0)
    assert [row["what"] for row in rows][:2] == ["out", "query"]
    assert all(row["right"] for row in rows), rows
    (record,) = results.load("correctness")
    assert record.metrics["rows"] == len(rows) and record.metrics["wrong"] == 0
    assert 0 < record.metrics["error_float64"] < 1e-12
    assert record.metrics["cases"] == 1
    assert results.rows(record)[0]["plain"] == "0.0", "the reference in float64 is what it is compared with"
    assert results.rows(record)[0]["mask"] == case.mask
    assert f"{operation}: {len(rows)} of {len(rows)} right" in capsys.readouterr().out


def test_wrong_numbers_nan_and_errors_are_rows(store, monkeypatch, capsys):
    case = Check(1, 2, 2, 5, 7, 16, 16, dtype="float32")
    kind = OPERATIONS["rbf"]
    right = kind.forward

    def wrong(factor):
        def forward(self, query, key, value, mask, method):
            if method == "fused" and factor is None:
                raise RuntimeError("out of registers in /home/somebody/kernel.py")
            out = right(self, query, key, value, mask, "reference")
            return out * factor if method == "fused" else out

        return forward

    _first_cases(monkeypatch, case)
    for factor in (1.001, float("nan"), None):
        monkeypatch.setattr(kind, "forward", wrong(factor))
        rows = correctness.run("rbf", device="cpu")
        assert not any(row["right"] for row in rows if row["what"] in ("out", "query"))
        (record,) = results.load("correctness")
        assert record.metrics["wrong"] >= 1
        if factor is None:
            assert rows[0]["reason"] == "RuntimeError: out of registers in …" and len(rows) == 1
    monkeypatch.setattr(kind, "forward", wrong(1.0))
    assert all(row["right"] for row in correctness.run("rbf", device="cpu"))
    assert not torch.is_deterministic_algorithms_warn_only_enabled()
