"""Benchmarks refuse wrong results, measure time and memory, and keep their rows."""

import re

import pytest

from gkalib import results
from gkalib.bench import others, run


@pytest.fixture
def store(tmp_path, monkeypatch):
    """An empty store of results."""
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path))
    return tmp_path


def test_a_device_that_a_benchmark_does_not_run_on():
    with pytest.raises(ValueError, match="bench: regression runs on the cpu"):
        run.run("regression", device="cuda")


def test_a_wrong_result_is_not_timed(monkeypatch):
    monkeypatch.setitem(others.EAGER, "eager-matmul", lambda query, key, value: 1.01 * value)
    monkeypatch.setattr(others, "METHODS", ("dense", "padded"))
    monkeypatch.setattr(run, "time_case", None)  # a case that ran would fail in another way
    with pytest.raises(
        ValueError, match=re.escape("smooth gives wrong results, so nothing was timed: eager-matmul")
    ):
        run.run("smooth", scale="smoke")


def test_gates_pass():
    others.check_regression("cpu")


@pytest.mark.slow
def test_rows_are_kept_with_their_ratios(store, monkeypatch, capsys):
    rows = run.run("regression", scale="smoke", keep=True)
    assert [(row["arm"], row["n"]) for row in rows] == [
        ("kernel-reg", 200),
        ("nadaraya-watson", 200),
        ("nadaraya-watson", 1000),
    ]
    assert rows[1]["ratio_kernel_reg"] == rows[0]["ms"] / rows[1]["ms"]
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if "other programs" not in line]) == 4  # that line is a busy machine's
    kept = {record.arm: record for record in results.load("bench")}
    assert set(kept) == {"regression-kernel-reg", "regression-nadaraya-watson"}
    ours = kept["regression-nadaraya-watson"]
    assert ours.metrics["ms_1000"] == rows[2]["ms"] and ours.scale == "smoke"
