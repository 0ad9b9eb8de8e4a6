"""Every method gives what the reference gives wherever it can, and one table says where it cannot."""

import pytest
import torch

import gkalib
from gkalib.normalizers import RowSum, Unnormalized
from gkalib.smoothing import METHODS, Dense, make_problem
from tests.cases import KERNELS, MASKS, NORMALIZERS, SHAPES, tensors
from tests.tolerance import agree

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
SUMS = ["row-sum", "row-sum-eps", "unnormalized"]


def computes(method: str) -> tuple[list[str], list[str], list[str]]:
    """Which kernels, masks and normalizers a method computes, by what a kernel says of itself."""
    method = "dense" if method == "blocks" else method
    made = {name: case.make(8) for name, case in KERNELS.items()}
    forms = {name: form for name, kernel in made.items() if (form := kernel.form(8)) is not None}
    with_features = [name for name, kernel in made.items() if kernel.features() is not None]
    of_content = [name for name, form in forms.items() if form.lag_table is None]
    of_lag_alone = [name for name, kernel in made.items() if not kernel.of_content]
    bands = ["none", "causal", "window", "causal-window", "padding", "causal-padding"]
    return {
        "dense": (list(KERNELS), list(MASKS), list(NORMALIZERS)),
        "padded": (of_content, list(MASKS), ["row-sum"]),
        "flex": (list(forms), list(MASKS), ["row-sum"]),
        "linear": (with_features, [name for name in bands if "window" not in name], SUMS),
        "toeplitz": (of_lag_alone, bands, SUMS),
        "fused": (list(forms), [*bands, "document"], ["row-sum", "unnormalized"]),
    }[method]


BLOCKS = Dense(memory=2**15)  # in blocks of a few queries
# Flex compiles for each case, fused programs are slow in their interpreter: both have files of their own.
HERE = {"dense": "dense", "blocks": BLOCKS, "padded": "padded", "linear": "linear"}


def pairs(turn: int = 0) -> list[tuple[str, str, str]]:
    """For each method every kernel and every mask at least once; which ones meet turns."""
    found = []
    for name in HERE:
        kernels, masks, _ = computes(name)
        found += [
            (name, kernels[i % len(kernels)], masks[(i + turn + i // len(kernels)) % len(masks)])
            for i in range(max(len(kernels), len(masks)))
        ]
    return found


CASES = [(*case, dtype) for turn, dtype in enumerate(DTYPES) for case in pairs(2 * turn)]


def _fits(method: str, mask: str, shape: str) -> bool:
    """Whether the lengths are such that the method computes them."""
    _, _, n, m, _, _ = SHAPES[shape]
    return method != "linear" or "causal" not in mask or n == m


def _inputs(kernel, mask, normalizer, shape, dtype):
    query, key, value = tensors(shape, dtype)
    batch, _, n, d = query.shape
    slots = {"mask": MASKS[mask](batch, n, key.shape[2]), "normalizer": NORMALIZERS[normalizer]()}
    function = KERNELS[kernel].make(d)
    if function.signed:  # their sum may cancel, but not with an ε above every one
        slots["normalizer"] = RowSum(eps=300.0) if normalizer == "row-sum-eps" else Unnormalized()
    return (query, key, value), function, slots


@pytest.mark.parametrize(("name", "kernel", "mask", "dtype"), CASES)
def test_method_agrees_with_reference(name, kernel, mask, dtype):
    """Each shape with a normalizer; which one turns from case to case."""
    normalizers = computes(name)[2]
    turn = list(KERNELS).index(kernel) + list(MASKS).index(mask)
    for i, shape in enumerate(SHAPES):
        if not _fits(name, mask, shape):
            continue
        normalizer = normalizers[(turn + i) % len(normalizers)]
        inputs, function, slots = _inputs(kernel, mask, normalizer, shape, DTYPES[dtype])
        actual = gkalib.smooth(*inputs, function, method=HERE[name], **slots)
        exact = gkalib.smooth(*(t.double() for t in inputs), function, method="reference", **slots)
        same = gkalib.smooth(*inputs, function, method="reference", **slots)
        agree(actual, exact, same)


@pytest.mark.parametrize(("name", "kernel", "mask"), pairs(1))
def test_gradients_agree_with_reference(name, kernel, mask):
    for shape in ("odd", "rectangular"):
        if not _fits(name, mask, shape):
            continue
        inputs, function, slots = _inputs(kernel, mask, "row-sum", shape, torch.float64)
        leaves = [tensor.requires_grad_() for tensor in inputs] + list(function.parameters())
        exact = gkalib.smooth(*inputs, function, method="reference", **slots)
        weight = torch.randn_like(exact)
        wanted = torch.autograd.grad((exact * weight).sum(), leaves, materialize_grads=True)
        actual = gkalib.smooth(*inputs, function, method=HERE[name], **slots)
        found = torch.autograd.grad((actual * weight).sum(), leaves, materialize_grads=True)
        for have, want in zip(found, wanted, strict=True):
            agree(have, want, want)


def _refusal(method: str, kernel: str, mask: str = "none", normalizer: str = "row-sum") -> str | None:
    """Why a method refuses the shape 'odd', having made sure that `smooth` raises with the same words."""
    inputs, function, _ = _inputs(kernel, mask, normalizer, "odd", torch.float32)
    query = inputs[0]
    slots = {"mask": MASKS[mask](*query.shape[:3:2], 17), "normalizer": NORMALIZERS[normalizer]()}
    with torch.no_grad():
        reason = METHODS[method].refuses(make_problem(*inputs, function, **slots))
        if reason is not None:
            with pytest.raises(ValueError, match="cannot compute this") as error:
                gkalib.smooth(*inputs, function, method=method, **slots)
            assert reason in str(error.value)
    return reason


@pytest.mark.parametrize("method", ["dense", "padded", "linear", "flex", "toeplitz", "fused"])
def test_refused_is_what_is_not_in_the_table(method):
    kernels, masks, normalizers = computes(method)
    typical = kernels[0]
    assert [name for name in KERNELS if _refusal(method, name) is None] == kernels
    assert [name for name in MASKS if _refusal(method, typical, name) is None] == masks
    assert [name for name in NORMALIZERS if _refusal(method, typical, "none", name) is None] == normalizers
