"""Benchmarks refuse wrong results, measure time and memory, and keep their rows."""

import re

import pytest
import torch

from gkalib import results
from gkalib.bench import measure, registry, regression, run, smooth


@pytest.fixture
def store(tmp_path, monkeypatch):
    """An empty store of results."""
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path))
    return tmp_path


def test_unknown_benchmark_and_device():
    with pytest.raises(ValueError, match=r"bench: no benchmark named 'smoth'\. Known: smooth, regression"):
        run.run("smoth")
    with pytest.raises(ValueError, match="bench: regression runs on the cpu"):
        run.run("regression", device="cuda")


def test_a_wrong_result_is_not_timed(monkeypatch):
    monkeypatch.setitem(smooth.EAGER, "eager-matmul", lambda query, key, value: 1.01 * value)
    monkeypatch.setattr(smooth, "METHODS", ("dense", "padded"))
    monkeypatch.setattr(run, "measure", None)  # a case that ran would fail in another way
    with pytest.raises(
        ValueError, match=re.escape("smooth gives wrong results, so nothing was timed: eager-matmul")
    ):
        run.run("smooth", scale="smoke")


def test_gates_pass():
    regression.gate("cpu")


def test_cases_cover_every_method_and_length():
    cases = smooth.cases("full", "cpu")
    assert {case["n"] for case in cases} == {256, 512, 1024, 2048, 4096, 8192}
    assert {case["arm"] for case in cases} == {
        "eager-cdist",
        "eager-matmul",
        "dense",
        "padded",
        "flex",
        "linear",
        "auto",
    }
    assert len(cases) == 42


def test_measure_sees_time_and_memory(monkeypatch):
    monkeypatch.setattr(measure, "SECONDS", 0.05)

    def prepare(case):
        return lambda: torch.zeros(case["n"], dtype=torch.float64).add_(1).sum()

    monkeypatch.setattr(
        measure, "benchmarks", lambda: {"fill": registry.Benchmark(lambda *_: [], prepare, lambda _: None)}
    )
    small, large = (measure.measure("fill", {"arm": "fill", "n": n}) for n in (1000, 30_000_000))
    assert 220 < large["peak_mib"] < 300  # 30 million numbers of 8 bytes are 229 MiB
    assert small["peak_mib"] < 20
    assert large["ms"] > small["ms"] > 0 and large["ms_q10"] <= large["ms"] <= large["ms_q90"]
    assert large["runs"] >= 3


@pytest.mark.slow
def test_rows_are_kept_with_their_ratios(store, monkeypatch, capsys):
    rows = run.run("regression", scale="smoke", keep=True)
    assert [(row["arm"], row["n"]) for row in rows] == [
        ("kernel-reg", 200),
        ("nadaraya-watson", 200),
        ("nadaraya-watson", 1000),
    ]
    assert rows[1]["ratio_kernel_reg"] == rows[0]["ms"] / rows[1]["ms"]
    assert len(capsys.readouterr().out.splitlines()) == 4
    kept = {record.arm: record for record in results.load("bench")}
    assert set(kept) == {"regression-kernel-reg", "regression-nadaraya-watson"}
    ours = kept["regression-nadaraya-watson"]
    assert ours.metrics["ms_1000"] == rows[2]["ms"] and ours.scale == "smoke"
