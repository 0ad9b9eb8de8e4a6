"""The quick tests, on any system: the library's mathematics and a smoke run, in minutes on two cores."""

import sys

import pytest

FOLDERS = ("kernels", "normalizers", "smoothing", "layers", "models", "results")
FILES = ("test_masks.py", "test_regression.py", "training/test_portable.py")
PATHS = [f"tests/{name}" for name in (*FOLDERS, *FILES)]
MARKS = "not slow and not browser and not book"
CARD = "tests/smoothing/fused/test_card.py"  # beside it tests compare the same in float64

if __name__ == "__main__":
    sys.exit(
        pytest.main(
            [*PATHS, f"--ignore={CARD}", "-m", MARKS, "-q", "-n", "2", "--dist", "worksteal", *sys.argv[1:]]
        )
    )
