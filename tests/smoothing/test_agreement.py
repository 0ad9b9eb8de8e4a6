"""Every method gives what the reference gives: kernel × mask × method × dtype, over shapes."""

import pytest
import torch

import gkalib
from gkalib.normalizers import Unnormalized
from gkalib.smoothing import METHODS, Dense
from gkalib.smoothing.problem import pose
from tests.cases import KERNELS, MASKS, NORMALIZERS, SHAPES, tensors
from tests.tolerance import agree

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
# Flex compiles for each case and has a file of its own; `blocks` is dense in blocks of a few queries.
UNDER_TEST = {
    "dense": METHODS["dense"],
    "blocks": Dense(memory=2**15),
    "padded": METHODS["padded"],
    "linear": METHODS["linear"],
}


def _pairs(kernel: str, mask: str) -> list[tuple[str, str]]:
    """Each shape with a normalizer; which one turns from case to case, so that all pairs occur."""
    turn = list(KERNELS).index(kernel) + list(MASKS).index(mask)
    names = list(NORMALIZERS)
    return [(shape, names[(turn + i) % len(names)]) for i, shape in enumerate(SHAPES)]


def _problem(kernel, mask, normalizer, shape, dtype):
    query, key, value = tensors(shape, dtype)
    batch, _, n, d = query.shape
    slots = {"mask": MASKS[mask](batch, n, key.shape[2]), "normalizer": NORMALIZERS[normalizer]()}
    return (query, key, value), KERNELS[kernel].make(d), slots


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", UNDER_TEST)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_method_agrees_with_reference(kernel, mask, method, dtype):
    refused = computed = 0
    for shape, normalizer in _pairs(kernel, mask):
        inputs, function, slots = _problem(kernel, mask, normalizer, shape, DTYPES[dtype])
        if function.signed:
            slots["normalizer"] = Unnormalized()  # the only one under which signed values cannot cancel
        reason = UNDER_TEST[method].refuses(pose(*inputs, function, positions=None, name="smooth", **slots))
        if reason:
            with pytest.raises(ValueError, match="cannot compute this"):
                gkalib.smooth(*inputs, function, method=UNDER_TEST[method], **slots)
            refused += 1
            continue
        actual = gkalib.smooth(*inputs, function, method=UNDER_TEST[method], **slots)
        exact = gkalib.smooth(*(t.double() for t in inputs), function, method="reference", **slots)
        same = gkalib.smooth(*inputs, function, method="reference", **slots)
        agree(actual, exact, same)
        computed += 1
    if method in ("dense", "blocks"):
        assert refused == 0
    assert refused + computed == len(SHAPES)


@pytest.mark.parametrize("method", ["dense", "blocks", "padded", "linear"])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_gradients_agree_with_reference(kernel, mask, method):
    for shape in ("odd", "rectangular"):
        inputs, function, slots = _problem(
            kernel,
            mask,
            "unnormalized" if kernel in ("dot", "random-fourier") else "row-sum",
            shape,
            torch.float64,
        )
        leaves = [tensor.requires_grad_() for tensor in inputs]
        parameters = list(function.parameters())
        exact = gkalib.smooth(*leaves, function, method="reference", **slots)
        weight = torch.randn_like(exact)
        wanted = torch.autograd.grad((exact * weight).sum(), leaves + parameters, materialize_grads=True)
        try:
            actual = gkalib.smooth(*leaves, function, method=UNDER_TEST[method], **slots)
        except ValueError as error:
            assert method in ("padded", "linear") and "cannot compute this" in str(error)
            continue
        for have, want in zip(
            torch.autograd.grad((actual * weight).sum(), leaves + parameters, materialize_grads=True),
            wanted,
            strict=True,
        ):
            agree(have, want, want)
