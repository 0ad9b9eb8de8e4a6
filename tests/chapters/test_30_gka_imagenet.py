"""The labeled equations of chapter 30 that no test of the library covers."""

import pytest
import torch

import gkalib
from gkalib.kernels import Gaussian
from gkalib.layers import attention
from gkalib.smoothing import compute_weights
from tests.tolerance import equal


@pytest.mark.parametrize("name", ["vlt", "gka"])
def test_a_head_without_values_reads_its_own_channels(name):
    x = torch.randn(1, 9, 8, dtype=torch.float64)
    layer = attention(name, proj_bias=False)(8, 2, dtype=torch.float64)
    w, out = compute_weights(layer.problem(x))[0], layer.proj.weight.T
    select = torch.eye(8, dtype=torch.float64).split(4, dim=1)
    by_heads = sum(w[h] @ x[0] @ select[h] @ out[4 * h : 4 * h + 4] for h in range(2))
    equal(layer(x)[0], by_heads)


def test_a_block_loses_a_quarter_of_its_matrices():
    """Without biases and norms, three of twelve D² are missing; bandwidths are vectors."""

    def matrices(name):
        block = gkalib.vit("tiny", attention=name).blocks[0]
        return sum(one.numel() for one in block.parameters() if one.ndim > 1)

    assert (matrices("softmax") - matrices("gka")) * 4 == matrices("softmax")


def test_without_its_diagonal_a_narrow_kernel_shows_the_closest_pair():
    x = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 0.8], [5.0, 5.0]], dtype=torch.float64)[None, None]
    w = gkalib.attention_weights(x, x, Gaussian(0.08))[0, 0]
    left = w - w.diagonal().diag()
    expected = torch.zeros(4, 4, dtype=torch.float64)
    expected[1, 2] = expected[2, 1] = 1
    assert (left / left.max() - expected).abs().max() < 1e-6
    assert left.max() < 1e-20
