"""Training runs where what only POSIX has is missing, as on Windows."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import os, sys
for name in ("fcntl", "grp", "pwd", "resource", "termios", "torch.utils.tensorboard"):
    sys.modules[name] = None
import torch  # the build for Linux takes them for granted

for name in ("register_at_fork", "fork", "killpg"):
    vars(os).pop(name, None)
import warnings
warnings.filterwarnings("ignore", "only soft file lock is available")  # filelock's, where Linux has no fcntl

from gkalib.cli import main

words = [sys.argv[1], "--smoke", "--steps", "3", "--warmup", "1", "--eval-every", "0"]
options = ["--device", "cpu", "--quiet", "--out", sys.argv[2]]
sys.exit(main(["train", *words, *options]) or main(["train", *words, *options]))
"""


@pytest.mark.parametrize("recipe", ["gpa-dickens", "gka-imagenet-tiny"])
def test_a_smoke_run_without_posix(recipe: str, tmp_path: Path):
    """Twice, so that it is also taken up from its checkpoint."""
    command = [sys.executable, "-c", PROGRAM, recipe, str(tmp_path / "run")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("  val_loss ") == 2 and (tmp_path / "run" / "step-00000003").is_dir()
