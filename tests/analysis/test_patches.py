"""Maps of patches are the square that they make, row by row."""

import numpy as np
import pytest
import torch

from gkalib.analysis.patches import patch_grid, query_patches, subsample


def test_patches_make_the_square_row_by_row():
    found = patch_grid(torch.arange(18).view(2, 9))
    assert found.shape == (2, 3, 3) and found[0].tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    with pytest.raises(ValueError, match=r"patch_grid: 17 weights make no square"):
        patch_grid(np.zeros((2, 17)))


def test_the_papers_queries_on_its_grid():
    assert query_patches(14) == {
        "upper left": (3, 3),
        "center": (7, 7),
        "lower right": (10, 10),
        "upper right": (3, 10),
    }


def test_large_matrices_are_thinned_evenly_from_end_to_end():
    matrix = np.arange(101.0)[:, None] + np.arange(101.0)
    found, kept = subsample(matrix, most=11)
    assert kept.tolist() == list(range(0, 101, 10))
    np.testing.assert_array_equal(found, matrix[::10, ::10])
    same, every = subsample(matrix[:50, :50])
    assert same.shape == (50, 50) and every.tolist() == list(range(50))
    assert subsample(np.zeros((3, 65, 65)))[0].shape == (3, 50, 50)
