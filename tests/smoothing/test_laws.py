"""The laws that make a smoother a smoother, over kernels, normalizers and masks."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import gkalib
from gkalib import kernels, masks, normalizers, smoothing
from tests.cases import KERNELS, MASKS, NORMALIZERS, tensors
from tests.tolerance import equal

AVERAGES = [name for name, make in NORMALIZERS.items() if make().averages]
POSITIVE = [name for name, case in KERNELS.items() if not case.make(8).signed]
CONTENT = [name for name in KERNELS if not KERNELS[name].make(8).of_lag]
N = 17


def _odd(kernel: str):
    query, key, value = tensors("odd")
    return query, key, value, KERNELS[kernel].make(query.shape[-1])


@pytest.mark.parametrize(
    ("kernel", "mask", "normalizer"),
    [(kernel, list(MASKS)[i % len(MASKS)], "row-sum") for i, kernel in enumerate(POSITIVE)]
    + [("gaussian", mask, normalizer) for mask in MASKS for normalizer in AVERAGES],
)
def test_averages_reproduce_constants_and_stay_in_range(kernel, mask, normalizer):
    query, key, value, function = _odd(kernel)
    slots = {"mask": MASKS[mask](2, N, N), "normalizer": NORMALIZERS[normalizer]()}
    constant = gkalib.smooth(query, key, torch.full_like(value, 3.0), function, **slots)
    some = constant != 0  # compact kernels and masks leave rows without a neighbor, which are zero
    equal(constant[some], torch.full_like(constant[some], 3.0))
    out = gkalib.smooth(query, key, value, function, **slots)
    low, high = (extreme(value, 2, keepdim=True).values for extreme in (torch.min, torch.max))
    inside = (out >= low - 1e-12) & (out <= high + 1e-12)
    assert (inside | ~some).all() and some.any()


@pytest.mark.parametrize(
    ("kernel", "normalizer"),
    # top-k breaks ties by index
    [*((kernel, "row-sum") for kernel in CONTENT), ("gaussian", "row-sum-eps"), ("gaussian", "simplex")],
)
def test_order_of_queries_and_keys_is_immaterial(kernel, normalizer):
    query, key, value, function = _odd(kernel)
    slots = {"normalizer": normalizers.Unnormalized() if function.signed else NORMALIZERS[normalizer]()}
    to, fro = torch.randperm(N), torch.randperm(N)
    out = gkalib.smooth(query, key, value, function, **slots)
    equal(gkalib.smooth(query[:, :, to], key[:, :, fro], value[:, :, fro], function, **slots), out[:, :, to])


@pytest.mark.parametrize(
    ("method", "kernel"),
    [
        *(("reference", "mixture"), ("dense", "laplace"), ("dense", "product-with-bank")),
        *(("padded", "gaussian"), ("padded", "expdot"), ("linear", "elu"), ("linear", "dot")),
    ],
)
def test_under_a_causal_mask_the_future_changes_nothing(kernel, method):
    query, key, value, function = _odd(kernel)
    slots = {"mask": masks.Causal(), "method": method}
    if function.signed:
        slots["normalizer"] = normalizers.Unnormalized()
    before = gkalib.smooth(query, key, value, function, **slots)
    key, value = key.clone(), value.clone()
    key[:, :, 9:] += 7.0
    value[:, :, 9:] = 1e3
    after = gkalib.smooth(query, key, value, function, **slots)
    equal(after[:, :, :9], before[:, :, :9])
    assert (after[:, :, 9:] != before[:, :, 9:]).any()


@pytest.mark.parametrize("kernel", KERNELS)
def test_heads_and_batch_are_independent(kernel):
    query, key, value, function = _odd(kernel)
    slots = {"normalizer": normalizers.Unnormalized()}
    out = gkalib.smooth(query, key, value, function, **slots)
    other = torch.randn_like(value)
    other[1, 2] = value[1, 2]
    equal(gkalib.smooth(query, key, other, function, **slots)[1, 2], out[1, 2])
    equal(gkalib.smooth(query[1:], key[1:], value[1:], function, **slots), out[1:])


@pytest.mark.parametrize(
    ("kernel", "normalizer"),
    [
        *((kernel, "row-sum") for kernel in POSITIVE),
        *(("gaussian", normalizer) for normalizer in NORMALIZERS),
    ],
)
def test_masked_is_deleted(kernel, normalizer):
    query, key, value, function = _odd(kernel)
    kept = torch.arange(N) % 3 != 1
    positions = (torch.arange(N), torch.arange(N)[kept])
    slots = {"normalizer": NORMALIZERS[normalizer]()}
    masked = gkalib.smooth(query, key, value, function, mask=kept.expand(N, N), **slots)
    deleted = gkalib.smooth(query, key[:, :, kept], value[:, :, kept], function, positions=positions, **slots)
    equal(masked, deleted)


@pytest.mark.parametrize(
    ("kernel", "mask"),
    [*((kernel, "causal") for kernel in KERNELS)]
    + [("product-with-bank", mask) for mask in ("none", "causal-window", "document")],
)
def test_decoding_one_query_gives_the_last_row(kernel, mask):
    query, key, value, function = _odd(kernel)
    slots = {"mask": MASKS[mask](2, N, N), "normalizer": normalizers.Unnormalized()}
    full = gkalib.smooth(query, key, value, function, **slots)
    equal(gkalib.smooth(query[:, :, -1:], key, value, function, **slots), full[:, :, -1:])


def test_decoding_over_a_trimmed_window_gives_the_last_row():
    query, key, value, function = _odd("product-with-bank")
    full = gkalib.smooth(query, key, value, function, mask=masks.Causal() & masks.Window(5))
    positions = (torch.tensor([N - 1]), torch.arange(N - 5, N))
    trimmed = gkalib.smooth(query[:, :, -1:], key[:, :, -5:], value[:, :, -5:], function, positions=positions)
    equal(trimmed, full[:, :, -1:])


@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 9), st.integers(1, 5), st.integers(0, 2**31))
def test_any_shape(n, m, d, e, seed):
    generator = torch.Generator().manual_seed(seed)
    query, key, value = (
        torch.randn(1, 2, *shape, dtype=torch.float64, generator=generator)
        for shape in ((n, d), (m, d), (m, e))
    )
    exact = gkalib.smooth(query, key, value, kernels.Gaussian(2.0), mask=masks.Causal(), method="reference")
    for method in ("dense", "padded"):
        equal(
            gkalib.smooth(query, key, value, kernels.Gaussian(2.0), mask=masks.Causal(), method=method), exact
        )


IN_MIND = {  # a kernel for each method
    "padded": kernels.Gaussian(torch.tensor([1.0, 2.0])),
    "dense": kernels.Laplace(1.0),
    "reference": kernels.Gaussian(1.0),
    "linear": kernels.PositiveRandom(8, 16, stabilizer="max").double(),
    "toeplitz": kernels.Elu() * kernels.ALiBi(2).double(),
}


@pytest.mark.parametrize("place", ["query", "key", "value", "one tensor"])
@pytest.mark.parametrize("mask", ["causal", "padding", "bias"])
@pytest.mark.parametrize(
    ("method", "count"),
    # few keys are another program of PyTorch's
    [*((method, 6) for method in IN_MIND), ("padded", 40)],
)
def test_a_nan_is_in_its_own_row_and_in_those_that_see_it(method, count, mask, place):
    slots: dict = {"mask": masks.Causal(), "kernel": IN_MIND[method], "method": method}
    if mask != "causal":
        slots["mask"] = masks.KeyPadding(torch.tensor([count - 2]))
    if mask == "bias" and method not in ("linear", "toeplitz"):
        slots |= {
            "mask": None,
            "bias": torch.zeros(count).masked_fill(torch.arange(count) == count - 2, -torch.inf),
        }
    inputs = [torch.randn(1, 2, count, 8, dtype=torch.float64) for _ in range(3)]
    inputs = inputs[:1] * 3 if place == "one tensor" else inputs
    whole = gkalib.smooth(*inputs, **slots)[0]
    spoilt = [x.clone() for x in inputs]
    for name, x in zip(("query", "key", "value"), spoilt, strict=True):
        x[:, 0, -2, 1] = torch.nan if place in (name, "one tensor") else x[:, 0, -2, 1]
    spoilt = spoilt[:1] * 3 if place == "one tensor" else spoilt
    lost = torch.zeros(2, count, dtype=torch.bool)
    lost[0, -2] = place in ("query", "one tensor") or mask == "causal"
    lost[0, -1] = place != "query" and mask == "causal"
    out = gkalib.smooth(*spoilt, **slots)[0]
    assert out[lost].isnan().any(-1).all()
    equal(out[~lost], whole[~lost])
    if place != "query":
        leaves = [x.requires_grad_() for x in dict.fromkeys(spoilt)]
        left = gkalib.smooth(*spoilt, **slots)[0][~lost].sum()
        assert all(grad.isfinite().all() for grad in torch.autograd.grad(left, leaves))


@pytest.mark.parametrize("shape", [(0, 2, 8, 8), (3, 2, 8, 0)], ids=["no sequence", "no column"])
@pytest.mark.parametrize(
    "method",
    [*IN_MIND, "flex", smoothing.Nystrom(4), smoothing.Skyformer(4), smoothing.FastGauss()],
    ids=lambda method: method if isinstance(method, str) else type(method).__name__,
)
def test_what_has_no_numbers_is_as_empty_afterwards(method, shape):
    """FlexAttention ends the process there, transforms and landmarks stopped."""
    x, value = torch.zeros(*shape[:3], 8, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64)
    slots: dict = {"kernel": IN_MIND.get(method, kernels.Gaussian(1.0)), "method": method}
    if method == "flex":
        assert gkalib.smooth(x.float(), x.float(), value.float(), **slots).shape == shape
        return
    if isinstance(method, smoothing.Skyformer):
        slots["normalizer"] = normalizers.Unnormalized()
    for mask in (None, masks.KeyPadding(torch.full(shape[:1], 8))):
        leaves = [x.clone().requires_grad_(), value.clone().requires_grad_()]
        out = gkalib.smooth(leaves[0], leaves[0], leaves[1], mask=mask, **slots)
        grads = torch.autograd.grad(out.sum(), leaves)
        assert out.shape == shape and not any(grad.any() for grad in grads)
