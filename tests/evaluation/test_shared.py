"""Two real processes that share the questions find, to the bit, what one does."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def test_two_processes_find_what_one_finds(tmp_path):
    started = [
        subprocess.Popen(
            [sys.executable, *words, "-m", "tests.evaluation.core_workers", str(tmp_path)],
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for words in ([], TORCHRUN)
    ]
    try:
        said = [process.communicate(timeout=300)[0] for process in started]
    finally:
        for process in started:
            process.terminate()  # then torchrun ends both of its own
    assert [process.returncode for process in started] == [0, 0], said
    alone, *both = (
        json.loads((tmp_path / f"{name}.json").read_text()) for name in ("0-of-1", "0-of-2", "1-of-2")
    )
    assert both == [alone, alone]
    assert [result["items"] for result in alone] == [22, 22]
    assert all(0 < result["accuracy"] < 1 and result["cropped"] for result in alone)
