"""Imports point to lower floors, and the contracts that say so can fail."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

LOWER, ALONE, UNTRAINED, UNDRAWN, UNREAD, TORCHLESS = (
    "An import points to a lower floor",
    "Results import nothing of ours",
    "Pictures import no training code",
    "Numbers of a model need no matplotlib",
    "The library imports no chapter",
    "Results and pages need no torch",
)
FAULTS = {
    "a kernel that imports a method": ("kernels/fault.py", "import gkalib.smoothing.methods.dense", LOWER),
    "a kernel that imports one by its public name": ("kernels/fault.py", "from gkalib import smooth", LOWER),
    "a mask that imports a kernel of its floor": ("masks.py", "from gkalib.kernels import Gaussian", LOWER),
    "shapes that import a kernel": ("shapes.py", "import gkalib.kernels", LOWER),
    "results that import a shape": ("results/fault.py", "import gkalib.shapes", ALONE),
    "results that import torch": ("results/fault.py", "import torch", TORCHLESS),
    "a picture that imports training code": ("viz/fault.py", "import gkalib.experiments", UNTRAINED),
    "a number that imports matplotlib": ("analysis/fault.py", "import matplotlib.figure", UNDRAWN),
    "a number that imports a picture": ("analysis/fault.py", "import gkalib.viz", LOWER),
    "a picture that imports a benchmark": ("viz/fault.py", "import gkalib.bench", LOWER),
    "a benchmark that imports the list": ("bench/fault.py", "import gkalib.gpu.run", LOWER),
    "a layer that imports a chapter": ("layers/fault.py", "import chapters.experiments", UNREAD),
    "a module on no floor": ("fault.py", "", LOWER),
}


def check(root: Path) -> subprocess.CompletedProcess:
    """Run import-linter over the package in ``root``."""
    code = "from importlinter.cli import lint_imports_command; lint_imports_command(['--no-cache'])"
    environment = {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=root, env=environment, capture_output=True, text=True
    )


def test_imports_point_to_lower_floors():
    done = check(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 kept, 0 broken" in done.stdout


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_breaks_a_contract(fault: str, tmp_path: Path):
    shutil.copytree(ROOT / "gkalib", tmp_path / "gkalib", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    path, line, contract = FAULTS[fault]
    target = tmp_path / "gkalib" / path
    target.write_text(f'"""A fault."""\n\n{line}\n')
    done = check(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{contract} BROKEN" in done.stdout


def test_importing_the_package_loads_no_torch():
    code = "import sys, gkalib, gkalib.results; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_figures_import_no_triton():
    """It reads TRITON_INTERPRET when it is imported, and chapters set that after their set-up cell."""
    code = "import sys; from gkalib import viz; sys.exit(int('triton' in sys.modules))"
    without = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=without).returncode == 0
