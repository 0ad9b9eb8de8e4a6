"""The quick tests, on any system: the library's mathematics and a smoke run, in minutes on two cores.

Of the fused programs, which a machine without a card interprets, those of tests/layers/test_fused.py.
"""

import sys

import pytest

FOLDERS = ("kernels", "normalizers", "smoothing", "layers", "models", "results")
FILES = ("test_masks.py", "test_regression.py", "training/test_portable.py")
PATHS = [f"tests/{name}" for name in (*FOLDERS, *FILES)]
MARKS = "not slow and not browser and not book"
FUSED = "tests/smoothing/fused"

if __name__ == "__main__":
    sys.exit(
        pytest.main(
            [*PATHS, f"--ignore={FUSED}", "-m", MARKS, "-q", "-n", "2", "--dist", "worksteal", *sys.argv[1:]]
        )
    )
