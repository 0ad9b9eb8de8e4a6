"""The quick part of the tests, on any system: the library's mathematics, in under three minutes on two cores."""

import sys

import pytest

PATHS = (
    *("tests/kernels", "tests/normalizers", "tests/smoothing", "tests/layers", "tests/models", "tests/results"),
    *("tests/test_masks.py", "tests/test_regression.py"),
)
MARKS = "not slow and not browser and not book and not gpu"

if __name__ == "__main__":
    sys.exit(pytest.main([*PATHS, "-m", MARKS, "-q", "-n", "2", "--dist", "worksteal", *sys.argv[1:]]))
