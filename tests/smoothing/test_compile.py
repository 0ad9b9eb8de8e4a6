"""`smooth` inside torch.compile: one graph, same numbers, same gradients."""

import subprocess
import sys

import pytest

from tests.smoothing.compiled import CASES


@pytest.fixture(scope="module")
def outcomes() -> list[str]:
    """What each case came to, from one process that runs them all."""
    run = [sys.executable, "-m", "tests.smoothing.compiled"]
    return subprocess.run(run, capture_output=True, text=True, check=True, timeout=280).stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_one_graph_gives_the_same(case, outcomes):
    assert " ".join(map(str, case)) + " ok" in outcomes
