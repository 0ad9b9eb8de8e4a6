"""The end of a test run says what was left out and how to have it."""

from types import SimpleNamespace

from tests.conftest import left_out


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
