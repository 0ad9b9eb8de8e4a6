"""Gradients against finite differences in float64, along random directions, the bandwidth's included."""

import pytest
import torch

import gkalib
from gkalib import kernels, masks
from tests.cases import KERNELS, MASKS, NORMALIZERS, tensors

BY_SIGMA = {
    "gaussian": kernels.Gaussian,
    "laplace": kernels.Laplace,
    "matern-1/2": lambda sigma: kernels.Matern(sigma, nu=0.5),
    "matern-3/2": lambda sigma: kernels.Matern(sigma, nu=1.5),
    "matern-5/2": lambda sigma: kernels.Matern(sigma, nu=2.5),
    "rational-quadratic": kernels.RationalQuadratic,
    "periodic": lambda sigma: kernels.Periodic(sigma, period=9.0),
    "epanechnikov": lambda sigma: kernels.Epanechnikov(9 * sigma),
    "tricube": lambda sigma: kernels.Tricube(9 * sigma),
    "expdot": lambda sigma: kernels.ExpDot(sigma / 8),
    "product": lambda sigma: kernels.Gaussian(sigma) * kernels.Laplace(2 * sigma),
    "mixture": lambda sigma: kernels.Gaussian(sigma) + kernels.Laplace(2 * sigma),
}


def _small(shape: str = "odd") -> list[torch.Tensor]:
    return [tensor[:, :, :4, :2].contiguous().requires_grad_() for tensor in tensors(shape)]


@pytest.mark.parametrize("kernel", BY_SIGMA)
@pytest.mark.parametrize("per_head", [False, True])
def test_gradcheck_with_sigma(kernel, per_head):
    sigma = torch.tensor([1.0, 1.4, 2.0, 3.0] if per_head else 1.7, dtype=torch.float64, requires_grad=True)

    def smoothed(query, key, value, sigma):
        return gkalib.smooth(query, key, value, BY_SIGMA[kernel](sigma), mask=masks.Causal(), method="dense")

    assert torch.autograd.gradcheck(smoothed, (*_small(), sigma), fast_mode=True)


@pytest.mark.parametrize(
    ("mask", "normalizer"),
    [*((mask, "row-sum") for mask in MASKS), *(("causal-window", name) for name in NORMALIZERS)],
)
def test_gradcheck_normalizers_and_masks(mask, normalizer):
    query, key, value = _small()
    slots = {"mask": MASKS[mask](2, 4, 4), "normalizer": NORMALIZERS[normalizer]()}
    kernel = kernels.Gaussian(1.5)
    assert torch.autograd.gradcheck(
        lambda *qkv: gkalib.smooth(*qkv, kernel, method="dense", **slots),
        (query, key, value),
        fast_mode=True,
    )


@pytest.mark.parametrize("kernel", KERNELS)
def test_gradient_is_finite_at_equal_points(kernel):
    function = KERNELS[kernel].make(8)
    x = tensors("grouped")[0].requires_grad_()
    lag = torch.arange(63)[:, None] - torch.arange(63)
    total = function(x, x, lag).sum() + 0 * x.sum()  # a kernel of the lag alone reads no x
    (gradient,) = torch.autograd.grad(total, x)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("method", ["reference", "dense", "padded"])
def test_row_without_a_key_is_zero_with_finite_gradients(method):
    query, key, value = _small()
    mask = masks.KeyPadding(torch.tensor([0, 3]))
    out = gkalib.smooth(query, key, value, kernels.Gaussian(1.0), mask=mask, method=method)
    assert (out[0] == 0).all() and (out[1] != 0).all()
    for gradient in torch.autograd.grad(out.sum(), (query, key, value)):
        assert gradient.isfinite().all() and (gradient[0] == 0).all()
