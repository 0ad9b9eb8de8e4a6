"""What enters half precision products keeps its type; that gradients are right, chapters' kernels show."""

import torch

from chapters.lab.exact import one_tensor, three_tensors


def test_what_enters_half_precision_products_stays_in_its_type():
    q, k, v, grad = torch.randn(4, 12, 5).bfloat16()
    found = one_tensor(q, grad, sigma=3.0, causal=False)
    assert found.g.dtype == torch.bfloat16 and found.x.dtype == torch.float64
    assert found.norm.dtype == found.delta.dtype == torch.float32
    three = three_tensors(q, k, v, grad, scale=0.25, causal=False)
    assert {one.dtype for one in three[:3]} == {torch.float32} != {one.dtype for one in three[3:]}
