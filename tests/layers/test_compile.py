"""Every variant in one graph: aot_eager for all, Inductor for three, and torch.export."""

import subprocess
import sys

import pytest

from tests.layers.compiled import CASES


@pytest.fixture(scope="module")
def outcomes() -> list[str]:
    """What each case came to, from one process that runs them all."""
    run = [sys.executable, "-m", "tests.layers.compiled"]
    return subprocess.run(run, capture_output=True, text=True, check=True, timeout=580).stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_one_graph_gives_the_same(case, outcomes):
    line = next(line for line in outcomes if line.startswith(" ".join(case) + " "))
    assert line == " ".join(case) + " ok"
