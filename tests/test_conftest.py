"""A test run ends with all that it started, marks what needs data, and says what was left out."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.afterwards import living
from tests.conftest import left_out

ROOT = Path(__file__).resolve().parents[1]


def skipped(reason: str) -> SimpleNamespace:
    return SimpleNamespace(longrepr=("tests/test_any.py", 1, f"Skipped: {reason}"))


def test_skips_are_counted_by_reason_with_what_makes_them_run():
    reasons = ["no Chromium on this machine"] * 3 + ["cifar10 is not here: python -m gkalib data get cifar10"]
    reasons += ["the interpreter computes no bfloat16", "full moon"]
    lines = left_out(map(skipped, reasons))
    assert lines[0].startswith("no browser or no npm: 3 not run; apt-get install chromium")
    assert lines[1] == "       3 no Chromium on this machine"
    assert lines[2].startswith("no data set: 1 not run; python -m gkalib data get")
    assert lines[4].startswith("no card: 1 not run")
    assert lines[6:] == ["other: 1 not run", "       1 full moon"]


def test_nothing_is_said_where_everything_ran():
    assert left_out([]) == []


def run(folder: Path, program: str, *options: str) -> subprocess.Popen:
    """Tests with the set-up of ours, of one program."""
    (folder / "test_it.py").write_text(program)
    words = ["-p", "tests.conftest", "-p", "no:cacheprovider", "-c", os.devnull, *options, "test_it.py"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "GKALIB_DATA": "", "XDG_CACHE_HOME": str(folder)}
    command = [sys.executable, "-m", "pytest", *words]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
def test_what_a_killed_run_started_ends_with_it(tmp_path):
    """A child's child, in a session of its own, as torchrun and a kernel start theirs."""
    child = """
import pathlib, subprocess, sys, time
def test_it():
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    code = f"import subprocess; subprocess.Popen({sleep}, start_new_session=True).wait()"
    subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    pathlib.Path("started").touch()
    time.sleep(600)
"""
    tests = run(tmp_path, child, "-n", "1")
    with tests:
        until(lambda: (tmp_path / "started").exists())
        mark = b"XDG_CACHE_HOME=%s" % os.fsencode(tmp_path)
        until(lambda: len(living(mark)) == 4)
        os.kill(tests.pid, signal.SIGKILL)
        until(lambda: not living(mark))


def until(reached, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_test_that_wants_data_is_skipped_by_its_mark_and_fails_without(tmp_path):
    program = """
import pytest
@pytest.mark.data("dickens")
def test_marked():
    raise AssertionError("it was run")
def test_unmarked():
    pytest.skip("dickens is not here: python -m gkalib data get dickens")
"""
    with run(tmp_path, program, "-rs") as tests:
        said = tests.communicate()[0]
    assert "1 failed, 1 skipped" in said
    assert "data get dickens: mark it with pytest.mark.data" in said
