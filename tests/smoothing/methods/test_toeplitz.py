"""Sums under a kernel of the lag by Fourier transforms: as the definition gives them, or refused."""

import re

import pytest
import torch

import gkalib
from gkalib import kernels, masks, normalizers
from gkalib.smoothing import METHODS, Toeplitz, make_problem
from tests.tolerance import agree, equal

HEADS = 4
DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}


def _table(length: int = 64) -> kernels.LagTable:
    table = kernels.LagTable(HEADS, length)
    torch.nn.init.normal_(table.bias)
    return table


def _bank() -> kernels.DecayingPeriodicBank:
    return kernels.DecayingPeriodicBank(HEADS, 5, sigma=0.5, length=20.0, tau=(2.0, 9.0))


KERNELS = {
    "elu": lambda: kernels.Elu() * _table(),
    "positive-random": lambda: _table() * kernels.PositiveRandom(8, 12),
    "table": _table,
    "short-table": lambda: kernels.Elu() * _table(4),  # lags beyond it take its ends
    "bank": lambda: kernels.Elu() * _bank(),
    "two-of-the-lag": lambda: (kernels.Elu() * _table()) * _bank(),
    "mixture-of-the-lag": lambda: kernels.Elu() * (_table() + _bank()),
}
MASKS = {
    "none": lambda: None,
    "causal": masks.Causal,
    "causal-window": lambda: masks.Causal() & masks.Window(5),
    "padding": lambda: masks.KeyPadding(torch.tensor([0, 6])),
    "window-padding": lambda: masks.Window(4) & masks.KeyPadding(torch.tensor([5, 9])),
}
NORMALIZERS = [normalizers.RowSum, lambda: normalizers.RowSum(eps=0.1), normalizers.Unnormalized]


def _tensors(dtype: torch.dtype, n: int = 17, m: int = 17):
    query = torch.randn(2, HEADS, n, 8, dtype=torch.float64)
    key = torch.randn(2, 2, m, 8, dtype=torch.float64)
    return query.to(dtype), key.to(dtype), torch.randn(2, 2, m, 5, dtype=torch.float64).to(dtype)


def _agree(actual, exact, same_dtype):
    """As everywhere; in float64 to float32's floor, since transforms round relative to the largest sum."""
    if actual.dtype == torch.float64:
        actual, same_dtype = actual.float(), same_dtype.float()
    agree(actual, exact, same_dtype)


@pytest.mark.parametrize(
    ("kernel", "mask", "dtype"),
    [
        (kernel, list(MASKS)[(i + 2 * turn) % len(MASKS)], dtype)
        for turn, dtype in enumerate(DTYPES)
        for i, kernel in enumerate(KERNELS)
    ],
)
def test_agrees_with_the_definition(kernel, mask, dtype):
    function = KERNELS[kernel]()
    turn = list(KERNELS).index(kernel) + list(MASKS).index(mask)
    sizes = ((17, 17), (9, 30), (30, 9))  # with fewer keys than queries the first rows may be empty
    for index, (n, m) in enumerate(sizes):
        normalizer = NORMALIZERS[(turn + index) % len(NORMALIZERS)]()
        slots = {"mask": MASKS[mask](), "normalizer": normalizer}
        inputs = _tensors(DTYPES[dtype], n, m)
        actual = gkalib.smooth(*inputs, function, method="toeplitz", **slots)
        same = gkalib.smooth(*inputs, function, method="reference", **slots)
        exact = gkalib.smooth(*(t.double() for t in inputs), function.double(), method="reference", **slots)
        function.float()
        _agree(actual, exact, same)


@pytest.mark.parametrize("mask", ["none", "causal", "window-padding"])
@pytest.mark.parametrize("memory", [2**28, 1])  # in one block, and a feature at a time
def test_gradients_agree_with_the_definition(memory, mask):
    function = (kernels.Elu() * _table(20)).double()
    leaves = [t.requires_grad_() for t in (*_tensors(torch.float64), function.second.bias)]
    slope = torch.randn(2, HEADS, 17, 5, dtype=torch.float64)
    fast, exact = (
        torch.autograd.grad(
            (gkalib.smooth(*leaves[:3], function, mask=MASKS[mask](), method=m) * slope).sum(), leaves
        )
        for m in (Toeplitz(memory), "reference")
    )
    for one, other in zip(fast, exact, strict=True):
        _agree(one, other, other)


def test_blocks_of_features_are_the_same_sums():
    inputs, function = _tensors(torch.float64), kernels.Elu() * _table()
    equal(
        gkalib.smooth(*inputs, function, method=Toeplitz(1)),
        gkalib.smooth(*inputs, function, method=Toeplitz()),
    )


def test_positions_given_shift_the_lags():
    inputs, function = _tensors(torch.float64, 5, 12), kernels.Elu() * _table()
    positions = (torch.arange(3, 8), torch.arange(-2, 10))
    shifted = gkalib.smooth(*inputs, function, positions=positions, method="toeplitz")
    equal(shifted, gkalib.smooth(*inputs, function, positions=positions, method="reference"))
    assert (shifted - gkalib.smooth(*inputs, function, method="toeplitz")).abs().max() > 1e-2


def test_a_row_that_drowns_in_rounding_is_refused_and_an_empty_one_is_not():
    """Far keys that weigh e^40 times the near ones: the first causal rows see only near ones."""
    inputs, function = _tensors(torch.float32, 41, 41), kernels.LagTable(HEADS, 41)
    function.bias.data = torch.arange(-40.0, 41.0).abs().expand(HEADS, -1)
    exact = gkalib.smooth(*(t.double() for t in inputs), function.double(), method="reference")
    agree(
        gkalib.smooth(*inputs, function, method="toeplitz"),
        exact,
        gkalib.smooth(*inputs, function.float(), method="reference"),
    )
    with pytest.raises(ValueError, match="the weights of a row sum to less than 1e-09 of the largest"):
        gkalib.smooth(*inputs, function, mask=masks.Causal(), method="toeplitz")
    nothing = masks.KeyPadding(torch.tensor([0, 0]))
    assert not gkalib.smooth(*inputs, function, mask=nothing, method="toeplitz").any()


def test_auto_never_takes_it():
    inputs = _tensors(torch.float32)
    explanation = gkalib.explain(*inputs, kernels.Elu() * _table())
    assert explanation.choice == "dense" and explanation.refusals["toeplitz"] is None


ELU, SHUFFLED = kernels.Elu(), (torch.arange(17), torch.arange(17).flip(0))


@pytest.mark.parametrize(
    ("kernel", "slots", "reason"),
    [
        (ELU, {}, "Elu has no factor that is a kernel of the lag alone"),
        (ELU * ELU * _table(), {}, "more than one factor beside its kernels of the lag"),
        (kernels.Gaussian(1.0) * _table(), {}, "Gaussian is not a finite inner product of features"),
        (ELU + _table(), {}, "Mixture has no factor that is a kernel of the lag alone"),
        (ELU * _table(), {"normalizer": normalizers.TopK(3)}, "TopK(3) needs the weights one by one"),
        (
            ELU * _table(),
            {"mask": masks.Document(torch.arange(17) // 5)},
            "Document([1, 17]) is no function of the lag",
        ),
        (ELU * _table(), {"positions": SHUFFLED}, "consecutive whole positions"),
        (
            ELU * _bank(),
            {"positions": (torch.arange(17) / 2, torch.arange(17) / 2)},
            "consecutive whole positions",
        ),
        (
            ELU * _table(),
            {"positions": (torch.arange(17).expand(2, -1), torch.arange(17))},
            "the same for the whole batch",
        ),
    ],
)
def test_refusals_give_their_reason(kernel, slots, reason):
    inputs = _tensors(torch.float32)
    with pytest.raises(ValueError, match=re.escape(reason)):
        gkalib.smooth(*inputs, kernel, method="toeplitz", **slots)
    assert reason in METHODS["toeplitz"].refuses(make_problem(*inputs, kernel, **slots))


def test_memory_must_be_positive():
    with pytest.raises(ValueError, match="Toeplitz: memory must be a positive number of bytes, not 0"):
        Toeplitz(memory=0)
