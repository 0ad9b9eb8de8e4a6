"""The labeled equations of chapter 14, each computed another way and compared with the library."""

import pytest
import torch
from torch import Tensor

from gkalib import attention_weights, smooth
from gkalib.kernels import ExpDot, Gaussian
from gkalib.smoothing import Conjugate
from gkalib.smoothing.local_line import LocalLine, by_cholesky
from tests.tolerance import oracle

RIDGE = 0.3
KERNELS = [ExpDot(), Gaussian(1.5)]


def problem(d: int = 4, e: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of one head."""
    return tuple(torch.randn(n, width, dtype=torch.float64) for n, width in ((7, d), (25, d), (25, e)))


def moments(weights: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """k̄, v̄, C and M of every query, from sums over keys as they are written."""
    mean_key, mean_value = weights @ key, weights @ value
    far, apart = key - mean_key[:, None], value - mean_value[:, None]
    C = torch.einsum("nm,nmd,nmc->ndc", weights, far, far)
    return mean_key, mean_value, C, torch.einsum("nm,nmf,nmd->nfd", weights, apart, far)


def regularized(C: Tensor, ridge: float = RIDGE) -> Tensor:
    return C + ridge * torch.eye(C.shape[-1], dtype=C.dtype)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_answer_is_the_height_of_the_best_line(kernel):
    """Ordinary least squares, where rows of a design ask for a slope of zero, has the library's answer."""
    query, key, value = problem()
    weights = attention_weights(query, key, kernel)
    out = smooth(query, key, value, kernel, degree=1, ridge=RIDGE)
    for q, w, b in zip(query, weights, out, strict=True):
        root = w.sqrt()[:, None]
        design = torch.cat([root, root * (key - q)], 1)
        penalty = RIDGE**0.5 * torch.eye(5, dtype=torch.float64)[1:]
        rows = torch.cat([root * value, torch.zeros(4, 3, dtype=torch.float64)])
        best = torch.linalg.lstsq(torch.cat([design, penalty]), rows).solution
        oracle(b, best[0])


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_slope_times_the_distance_corrects_the_mean(kernel):
    query, key, value = problem()
    mean_key, mean_value, C, M = moments(attention_weights(query, key, kernel), key, value)
    step = torch.linalg.solve(regularized(C), (mean_key - query)[..., None])
    expected = mean_value - (M @ step)[..., 0]
    for method in ("reference", "dense", "conjugate"):
        oracle(smooth(query, key, value, kernel, degree=1, ridge=RIDGE, method=method), expected)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_line_has_signed_weights_that_sum_to_one(kernel):
    query, key, value = problem()
    weights = attention_weights(query, key, kernel)
    mean_key, _, C, _ = moments(weights, key, value)
    p = torch.linalg.solve(regularized(C), (mean_key - query)[..., None])
    expected = weights * (1 - ((key - mean_key[:, None]) @ p)[..., 0])
    found = attention_weights(query, key, kernel, degree=1, ridge=RIDGE)
    oracle(found, expected)
    oracle(found.sum(1), torch.ones(7, dtype=torch.float64))
    oracle(found @ value, smooth(query, key, value, kernel, degree=1, ridge=RIDGE))
    assert found.min() < -1e-3


@pytest.mark.parametrize("ridge", [0.0, 0.3, 5.0])
def test_how_far_from_the_query_the_keys_balance(ridge):
    query, key, value = problem()
    mean, _, C, _ = moments(attention_weights(query, key), key, value)
    left = ridge * torch.linalg.solve(regularized(C, ridge), (query - mean)[..., None])[..., 0]
    found = attention_weights(query, key, degree=1, ridge=ridge) @ key
    oracle(found, query - left)
    variances, axes = torch.linalg.eigh(C)  # the dial: a share c / (c + λ) of the way, axis by axis
    way, whole = (((x - mean)[:, None] @ axes)[:, 0] for x in (found, query))
    oracle(way, variances / (variances + ridge) * whole)


def test_a_penalty_beside_kernel_values_is_a_ridge_times_their_sum():
    """Twice the kernel's values with the same penalty are half the ridge; softmax does not see the two."""
    query, key, value = problem()
    values = (query @ key.mT / 2).exp()
    for times in (1.0, 2.0):
        for q, kappa in zip(query, times * values, strict=True):
            penalty = RIDGE * values.sum()
            design = torch.cat([torch.ones(25, 1, dtype=torch.float64), key - q], 1)
            squares = design.T @ (kappa[:, None] * design)
            squares[1:, 1:] += penalty * torch.eye(4, dtype=torch.float64)
            answer = torch.linalg.solve(squares, design.T @ (kappa[:, None] * value))[0]
            ridge = (penalty / kappa.sum()).item()
            oracle(smooth(q[None], key, value, degree=1, ridge=ridge)[0], answer)


def test_softmax_does_not_see_where_a_query_lies_and_the_line_does():
    query, key, value = problem()
    B, t = torch.randn(4, 4, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    moved, turned = query @ B.T, key @ torch.linalg.inv(B) + t  # rows: (B⁻ᵀ k)ᵀ = kᵀ B⁻¹
    oracle(moved @ turned.T, query @ key.T + (query @ B.T @ t)[:, None])
    oracle(smooth(moved, turned, value), smooth(query, key, value))
    lines = [smooth(*two, value, degree=1, ridge=RIDGE) for two in ((moved, turned), (query, key))]
    assert (lines[0] - lines[1]).abs().max() > 0.1


def test_a_product_with_the_matrix_is_two_products_with_the_weights():
    query, key, value = problem()
    weights = attention_weights(query, key)
    mean, _, C, _ = moments(weights, key, value)
    x = torch.randn(7, 4, dtype=torch.float64)
    two = (weights * (x @ key.mT)) @ key - (mean * x).sum(1, keepdim=True) * mean + RIDGE * x
    oracle(two, (regularized(C) @ x[..., None])[..., 0])
    five = (weights[None, None], key[None, None], mean[None, None], torch.full((1, 1, 1, 1), RIDGE).double())
    right = (mean - query)[None, None]
    oracle(Conjugate().solve(*five, right), by_cholesky(*five, right))


def test_parallax_is_the_line_where_it_learns_the_solution():
    query, key, value = problem()
    weights = attention_weights(query, key)
    mean_key, mean_value, C, M = moments(weights, key, value)
    r = torch.randn(7, 4, dtype=torch.float64)
    out = smooth(query, key, value, normalizer=LocalLine(slope=r[None, None]))
    oracle(out, mean_value - (M @ r[..., None])[..., 0])
    second = (weights * (r @ key.mT)) @ value
    oracle(out, (1 + (r * mean_key).sum(1, keepdim=True)) * mean_value - second)
    solution = torch.linalg.solve(regularized(C), (mean_key - query)[..., None])[..., 0]
    line = smooth(query, key, value, degree=1, ridge=RIDGE)
    oracle(smooth(query, key, value, normalizer=LocalLine(slope=solution[None, None])), line)
