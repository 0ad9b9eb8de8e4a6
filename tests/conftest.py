"""Set-up of every test: shapes are checked, threads are few, an empty tensor is poisoned.

At its end a run says what it left out, by reason, and what would make it run.
"""

import datetime
import os
import re
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import jaxtyping
import pytest
import torch

# Fused programs run in Triton's interpreter where there is no card; read when they are first imported.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

# The library and what lies beside the chapters are imported through a hook that checks every annotated shape
# and type while a test runs.
HOOKED = ["gkalib", "chapters.figures", "chapters.lab"]
HOOK = jaxtyping.install_import_hook(HOOKED, "beartype.beartype" if find_spec("beartype") else None)
# Triton's interpreter looks for a program's source and globals, which a check around it would hide.
CHECKED = HOOK.hook.should_instrument
TRITON = ("gkalib.smoothing.fused.", "chapters.lab.rows")
HOOK.hook.should_instrument = lambda name: CHECKED(name) and not name.startswith(TRITON)

torch.set_num_threads(1)
torch.utils.deterministic.fill_uninitialized_memory = True
torch.use_deterministic_algorithms(True)  # with it, memory that nobody wrote reads as NaN

# What a skipped test's reason speaks of, the same in a word, and what makes it run.
LEFT_OUT = (
    (
        r"chromium|\bnpm\b",
        "no browser or no npm",
        "apt-get install chromium fonts-dejavu-core npm, as .ci/run does (macOS: brew install node and "
        "brew install --cask chromium); then make book",
    ),
    (r"\bhere: ", "no data set", "python -m gkalib data get NAME fetches it, or says where to put it"),
    (
        r"not installed|could not import|is an extra",
        "no package",
        "$(make -s env)/bin/pip install PACKAGE, into an environment of your own",
    ),
    (r"interpret|bfloat16|\bcards?\b|\bGPU\b", "no card", "make test on a machine with a GPU"),
    ("", "other", ""),
)


def left_out(reports) -> list[str]:
    """Lines that say how many tests were skipped, by reason, and what makes them run."""
    groups: dict[int, Counter[str]] = {}
    for report in reports:
        reason = report.longrepr[2].removeprefix("Skipped: ")
        kind = next(n for n, (words, *_) in enumerate(LEFT_OUT) if re.search(words, reason, re.IGNORECASE))
        groups.setdefault(kind, Counter())[reason] += 1
    lines = []
    for kind, reasons in sorted(groups.items()):
        _, name, remedy = LEFT_OUT[kind]
        lines.append(f"{name}: {sum(reasons.values())} not run" + (f"; {remedy}" if remedy else ""))
        lines += [f"    {count:4} {reason}" for reason, count in reasons.most_common()]
    return lines


def pytest_collection_modifyitems(items):
    """Mark what computes on the card where there is one, so that ``-m gpu`` chooses it."""
    for item in items:
        if "device" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.gpu)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Skip, before its fixtures are made, a test marked with a data set that is not on this machine."""
    from gkalib.data import registry  # through the hook above

    for name in (name for mark in item.iter_markers("data") for name in mark.args):
        if not registry.ready(name):
            pytest.skip(f"{name} is not here: python -m gkalib data get {name}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Fail a test that leaves itself out for want of data: without the mark `-m data` would not choose it."""
    report = yield
    missing = report.skipped and "python -m gkalib data get" in str(report.longrepr)
    if missing and not item.get_closest_marker("data"):
        report.outcome, report.longrepr = "failed", f"{report.longrepr[2]}: mark it with pytest.mark.data"
    return report


def pytest_terminal_summary(terminalreporter):
    """Say at the end what was left out; pytest-xdist has brought the workers' reports together."""
    lines = left_out(terminalreporter.stats.get("skipped", []))
    if lines:
        terminalreporter.section("left out")
        terminalreporter.write_line("\n".join(lines))


def pytest_configure(config):
    """Have what the tests start end with them, however they end; choose what the day draws, for all workers.

    That is the perturbed chapters, and the cells whose code is broken.
    """
    if sys.platform == "linux":
        number = str(os.getpid())
        watch = [sys.executable, "-I", "-S", str(Path(__file__).with_name("afterwards.py")), number]
        silent = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        config.afterwards = subprocess.Popen(watch, start_new_session=True, env={}, **silent)
        os.environ["STARTED_BY_TESTS"] = number
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    for name in ("JITTER", "MUTATE"):
        os.environ.setdefault(name, today)


def pytest_report_header():
    """Print those seeds: what they drew can be repeated on any day."""
    return [
        f"jitter: what tests/chapters/test_jitter.py draws today: make jitter SEED={os.environ['JITTER']}",
        f"mutations: what tests/papers/test_mutations.py breaks today: MUTATE={os.environ['MUTATE']}",
    ]


@pytest.fixture(autouse=True)
def _seed():
    """The same random numbers whatever the order of tests."""
    torch.manual_seed(0)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty store of results, where runs of the test are kept."""
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path))
    return tmp_path


@pytest.fixture
def as_a_user():
    """Without the shape checks of the test run, so that the library's own errors are the ones that appear."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def device() -> torch.device:
    """The card where there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
