"""Packs of results: whole or not at all, as they were made, and never old over new."""

import tarfile
import threading
from pathlib import Path

import pytest

from gkalib import results
from gkalib.gpu.pack import NAME, pack, unpack


@pytest.fixture
def store(tmp_path, monkeypatch):
    """An empty store of results."""
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path / "store"))
    return tmp_path / "store"


def _packed(folder: Path, *, code: str, date: str = "2026-01-01T00:00:00+00:00", loss: float = 0.5) -> Path:
    """A pack of one run that was made outside a repository."""
    record = results.Record(
        experiment="trial", arm="one", scale="full", recipe={"a": 1}, seed=0, device="NVIDIA H100",
        commit="unknown", clean=False, date=date, wall_seconds=1.5, metrics={"loss": loss},
    )  # fmt: skip
    results.save(record, rows=[{"step": 1, "loss": "0.50"}], root=folder / "made")
    return pack(folder / "made", folder, code=code)


def test_a_pack_keeps_runs_as_they_are_and_never_puts_old_over_new(store, tmp_path):
    first = _packed(tmp_path, code="abc")
    assert unpack(first) == ["trial/one-full-s0-nvidia-h100"]
    made, kept = ((folder / "trial/one-full-s0-nvidia-h100") for folder in (tmp_path / "made", store))
    for name in ("run.json", "metrics.csv"):
        assert (kept / name).read_bytes() == (made / name).read_bytes()
    assert unpack(first) == []
    assert unpack(_packed(tmp_path, code="abc", date="2025-01-01T00:00:00+00:00", loss=9.0)) == []
    assert unpack(_packed(tmp_path, code="abc", date="2027-01-01T00:00:00+00:00", loss=0.1))
    assert results.load("trial")[0].metrics == {"loss": 0.1}


@pytest.mark.parametrize(("code", "clean", "commit"), [
    ("abc", True, "f00"), ("xyz", True, "unknown"), ("abc", False, "unknown"), ("", True, "unknown"),
])  # fmt: skip
def test_a_run_gets_the_commit_only_of_the_same_code_in_a_clean_tree(
    store, tmp_path, monkeypatch, code, clean, commit
):
    packed = _packed(tmp_path, code="abc" if code else "")
    monkeypatch.setattr(results, "provenance", lambda: {"commit": "f00", "clean": clean})
    unpack(packed, code=code)
    (record,) = results.load("trial")
    assert (record.commit, record.clean) == (commit, commit == "f00")


def test_a_run_without_a_commit_gets_it_when_it_is_unpacked_again(store, tmp_path, monkeypatch):
    packed = _packed(tmp_path, code="abc")
    for clean, commit in ((False, "unknown"), (True, "f00"), (False, "f00")):
        monkeypatch.setattr(results, "provenance", lambda clean=clean: {"commit": "f00", "clean": clean})
        unpack(packed, code="abc")
        assert results.load("trial")[0].commit == commit


def test_a_run_that_is_replaced_while_it_is_packed_is_packed_whole(store, tmp_path):
    """Another process moves a run away and puts its successor there."""
    for _ in range(3):
        _packed(tmp_path, code="abc")
    run = tmp_path / "made/trial/one-full-s0-nvidia-h100"
    content = (run / "metrics.csv").read_bytes()
    (run / "metrics.csv").unlink()
    again = threading.Timer(0.2, (run / "metrics.csv").write_bytes, [content])
    again.start()
    pack(tmp_path / "made", tmp_path, code="abc")
    again.join()
    assert unpack(tmp_path / NAME) == ["trial/one-full-s0-nvidia-h100"]
    (run / "metrics.csv").unlink()
    pack(tmp_path / "made", tmp_path, code="abc")
    assert unpack(tmp_path / NAME, root=tmp_path / "other") == []


def test_what_is_no_pack_is_refused(tmp_path):
    (tmp_path / "other.gz").write_bytes(b"no archive")
    whole = _packed(tmp_path, code="abc").read_bytes()
    (tmp_path / "half.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "spoilt.gz").write_bytes(whole[:40] + b"\xff" * 40 + whole[80:])
    for name in ("other.gz", "absent.gz", "half.gz", "spoilt.gz"):
        with pytest.raises(ValueError, match="is no pack of results"):
            unpack(tmp_path / name)


def test_a_run_that_lost_its_course_is_named(store, tmp_path):
    _packed(tmp_path, code="abc")
    run = "trial/one-full-s0-nvidia-h100"
    with tarfile.open(tmp_path / "part.gz", "w:gz") as archive:
        archive.add(tmp_path / "made" / run / "run.json", f"{run}/run.json")
    with pytest.raises(ValueError, match=rf"holds the run {run} without its metrics\.csv"):
        unpack(tmp_path / "part.gz")
