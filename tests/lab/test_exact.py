"""The gradients that pages compare with are those of the reference method, and their terms are as defined."""

import pytest
import torch

import gkalib
from chapters.lab.exact import forces, one_tensor, three_tensors
from gkalib.kernels import Gaussian
from gkalib.masks import Causal
from tests.tolerance import equal

BOTH = pytest.mark.parametrize("causal", [False, True])
Q, K, V, GRAD = torch.randn(4, 12, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def reference(*tensors, sigma, causal):
    """Output and gradients of the reference method; the last gradient is that of sigma."""
    width = torch.tensor([sigma], dtype=torch.float64, requires_grad=True)
    leaves = [one.clone()[None, None].requires_grad_() for one in tensors]
    roles = leaves * 3 if len(leaves) == 1 else leaves
    mask = Causal() if causal else None
    out = gkalib.smooth(*roles, Gaussian(width), mask=mask, method="reference")
    gradients = torch.autograd.grad(out, (*leaves, width), GRAD[None, None])
    return out[0, 0].detach(), [one.squeeze() for one in gradients]


@BOTH
def test_three_tensors(causal):
    found = three_tensors(Q, K, V, GRAD, scale=0.25, causal=causal)
    out, (of_q, of_k, of_v, _) = reference(Q, K, V, sigma=2.0, causal=causal)
    for mine, exact in ((found.query, of_q), (found.key, of_k), (found.value, of_v)):
        equal(mine, exact)
    equal(found.delta, (out * GRAD).sum(-1))
    seen = torch.ones(12, 12, dtype=torch.float64).tril() if causal else torch.ones(12, 12).double()
    sums = (seen * (0.25 * (Q @ K.mT - found.half)).exp()).sum(-1)
    equal(found.half, K.square().sum(-1) / 2)
    equal(found.log_sum, sums.log2())


@BOTH
def test_one_tensor(causal):
    found = one_tensor(Q, GRAD, sigma=3.0, causal=causal)
    out, (of_x, of_sigma) = reference(Q, sigma=3.0, causal=causal)
    for mine, exact in ((found.out, out), (found.x, of_x), (found.sigma, of_sigma)):
        equal(mine, exact)
    kappa = (-torch.cdist(Q, Q, compute_mode="donot_use_mm_for_euclid_dist").square() / 18).exp()
    total = (kappa.tril() if causal else kappa).sum(-1)
    equal(found.g, GRAD / total[:, None])
    equal(found.delta, (out * GRAD).sum(-1) / total)
    equal(found.norm, Q.square().sum(-1) / 18 / torch.log(torch.tensor(2.0, dtype=torch.float64)))


def test_what_enters_half_precision_products_stays_in_its_type():
    found = one_tensor(Q.bfloat16(), GRAD.bfloat16(), sigma=3.0, causal=False)
    assert found.g.dtype == torch.bfloat16 and found.x.dtype == torch.float64
    assert found.norm.dtype == found.delta.dtype == torch.float32
    three = three_tensors(*(one.bfloat16() for one in (Q, K, V, GRAD)), scale=0.25, causal=False)
    assert {one.dtype for one in three[:3]} == {torch.float32} != {one.dtype for one in three[3:]}


def test_other_sizes_are_refused():
    with pytest.raises(ValueError, match=r"one size, not \[\[12, 5\], \[12, 5\], \[12, 5\], \[11, 5\]\]"):
        three_tensors(Q, K, V, GRAD[:11], scale=1.0, causal=False)
    with pytest.raises(ValueError, match=r"one size, not \[\[12, 5\], \[12\]\]"):
        one_tensor(Q, GRAD[:, 0], sigma=1.0, causal=False)


@BOTH
def test_forces_and_weights_give_the_gradient(causal):
    force = forces(Q, GRAD, sigma=1.5, causal=causal)
    assert torch.equal(force, force.mT) and not force.diagonal().any()
    right = one_tensor(Q, GRAD, sigma=1.5, causal=causal)
    w = gkalib.attention_weights(*2 * [Q[None, None]], Gaussian(1.5), mask=Causal() if causal else None)[0, 0]
    pulled = (force[:, :, None] * (Q - Q[:, None])).sum(1) / 1.5**2
    equal(w.mT @ GRAD + pulled, right.x)
    with pytest.raises(ValueError, match="of one size"):
        forces(Q, GRAD[:3], sigma=1.5, causal=causal)
