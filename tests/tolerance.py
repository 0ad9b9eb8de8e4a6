"""How close is close enough: one policy for every comparison of a method with the reference in float64."""

import torch
from torch import Tensor

# In units of the dtype's spacing at the largest number of the exact result. Scores of matrix-product methods
# carry the rounding error of their largest term, so a weight loses a few digits more in the wide dtypes,
# where the reference, which subtracts first, loses none. In half precision all methods score in float32 or
# better.
FLOOR = {torch.float64: 64, torch.float32: 64, torch.bfloat16: 3, torch.float16: 3}


def floor(dtype: torch.dtype, exact: Tensor) -> float:
    """The error that a result of this dtype may have whatever the reference's own error is."""
    largest = exact.abs().max().item() if exact.numel() else 0.0
    return FLOOR[dtype] * torch.finfo(dtype).eps * max(largest, torch.finfo(dtype).tiny)


def agree(actual: Tensor, exact: Tensor, same_dtype: Tensor) -> None:
    """Assert |actual − exact| ≤ 2 × the error of the reference run in the same dtype, plus the floor.

    ``exact`` is the reference in float64; ``same_dtype`` the reference on the inputs as ``actual`` had them.
    """
    assert actual.shape == exact.shape, f"shape {list(actual.shape)}, expected {list(exact.shape)}"
    assert actual.dtype == same_dtype.dtype, f"dtype {actual.dtype}, expected {same_dtype.dtype}"
    assert actual.isfinite().all(), f"{(~actual.isfinite()).sum()} of {actual.numel()} numbers are not finite"
    error = (actual.double() - exact).abs().max().item()
    allowed = 2 * (same_dtype.double() - exact).abs().max().item() + floor(actual.dtype, exact)
    assert error <= allowed, f"error {error:.2e} is above {allowed:.2e}"


def oracle(actual: Tensor, exact: Tensor) -> None:
    """Assert that a sum in float64 is its formula: error ≤ 1e-12 of the largest number.

    Fused operations sum in another order, and others over terms that cancel, so that 64 spacings are not
    always enough; a wrong term would be off by many orders more.
    """
    assert actual.shape == exact.shape, f"shape {list(actual.shape)}, expected {list(exact.shape)}"
    assert actual.dtype == exact.dtype == torch.float64, f"dtypes {actual.dtype}, {exact.dtype}"
    error = (actual - exact).abs().max().item() if exact.numel() else 0.0
    allowed = 1e-12 * max(exact.abs().max().item() if exact.numel() else 0.0, 1e-3)
    assert error <= allowed, f"error {error:.2e} is above {allowed:.2e}"


def equal(actual: Tensor, exact: Tensor) -> None:
    """Assert that two float64 results of one quantity differ by rounding only."""
    agree(actual, exact, exact)


# ‖actual − exact‖ of a row over the largest row's ‖exact‖: what products in 16 bits leave of a sum.
ROW = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 2e-2}


def close(actual: Tensor, exact: Tensor, dtype: torch.dtype, times: float) -> None:
    """Assert that every row of a fused result is near the same in float64, on whatever device.

    Args:
        actual: in ``dtype``, or of parameters in float32.
        exact: in float64.
        dtype: that products were formed in.
        times: 1 for an output, more for gradients, which are sums over products of products.
    """
    assert actual.shape == exact.shape, f"shape {list(actual.shape)}, expected {list(exact.shape)}"
    rows, wanted = (
        each.double().flatten(0, -2) if each.ndim > 1 else each.double()[None] for each in (actual, exact)
    )
    errors = (rows - wanted).norm(dim=-1)
    allowed = times * ROW[dtype] * max(wanted.norm(dim=-1).max().item(), 1e-6)
    worst = errors.nan_to_num(torch.inf).argmax()
    assert errors[worst] <= allowed, f"error {errors[worst]:.1e} in row {worst} is above {allowed:.1e}"
