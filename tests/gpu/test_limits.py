"""What a device reaches and what a call costs, measured in small; Nsight Compute's words are read."""

import pytest

from gkalib import results
from gkalib.bench import roofline
from gkalib.gpu import limits


@pytest.fixture
def store(tmp_path, monkeypatch):
    """An empty store of results, and ceilings that nobody measured."""
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path))
    rates = roofline.Rates(products=1e12, memory=1e11, exponentials=1e9)
    monkeypatch.setattr(roofline, "ceilings", lambda device: (rates, None))


def test_ceilings_and_the_host_s_time_are_one_record(store):
    metrics = limits.ceilings(device="cpu")
    assert metrics["products"] == 1e12 and "issue" not in metrics and "node_us" not in metrics
    assert {name for name in metrics if name.startswith("host_us_")} == {
        "host_us_gka_forward", "host_us_gka_both", "host_us_sdpa_forward", "host_us_sdpa_both",
    }  # fmt: skip
    assert metrics["host_us_sdpa_forward"] > 0 and metrics["host_us_gka_both"] > 0
    (record,) = results.load("limits")
    assert record.arm == "ceilings" and record.metrics == metrics


def test_a_profile_has_a_row_for_what_took_time(store):
    rows = limits.profile(device="cpu")
    assert rows and all(row["value"] > 0 and row["unit"] == "us" for row in rows)
    (record,) = results.load("limits")
    assert record.metrics["us"] == pytest.approx(sum(row["value"] for row in rows))


def test_a_tool_that_is_missing_or_does_not_end_says_nothing(monkeypatch, capfd):
    monkeypatch.setattr(limits, "PATIENCE", 0.5)
    assert limits.said("echo", "something") == "something\n"
    assert limits.said("sleep", "30") == limits.said("no-such-tool") == ""
    assert capfd.readouterr().out == "sleep had not ended after 0 s\nno-such-tool is not here\n"


def test_numbers_of_nsight_compute_are_read_and_its_advice_is_not():
    text = """==PROF== Connected to process 7
a line that the program printed
"ID","Process ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value","Rule Name"
"0","7","gka_forward_kernel","GPU Speed Of Light","DRAM Throughput","%","41.50",""
"0","7","gka_forward_kernel","GPU Speed Of Light","Duration","ns","17,440",""
"0","7","gka_forward_kernel","GPU Speed Of Light","","","","SOLBottleneck"
"""
    assert [tuple(row.values()) for row in limits.read(text)] == [
        ("gka_forward_kernel", "DRAM Throughput", "%", 41.5),
        ("gka_forward_kernel", "Duration", "ns", 17440.0),
    ]
    assert limits.read("ncu: no permission") == []
