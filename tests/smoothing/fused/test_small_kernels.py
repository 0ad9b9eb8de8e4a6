"""Beside its programs a fused call starts one small kernel at most forward, and two at most backward.

But for KERPLE, whose table PyTorch forms by its formula.
"""

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import gkalib
from gkalib import kernels, masks
from gkalib.smoothing.fused.launch import collected

IMPLEMENTATION = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
MEMORY = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
HEADS, TOKENS, WIDTH = 3, 40, 16

pytestmark = pytest.mark.usefixtures("unread")


class SmallKernels(TorchDispatchMode):
    """Within it PyTorch's operators are listed that compute, those that a fused operator calls as well."""

    def __init__(self):
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        with self:
            if function.namespace == "gkalib":
                return function.redispatch(IMPLEMENTATION, *args, **kwargs)
            made_of_others = function.decompose(*args, **kwargs)
        if made_of_others is not NotImplemented:
            return made_of_others
        name = function._schema.name.removeprefix("aten::")
        if not function.is_view and name not in MEMORY:
            self.names.append(name)
        return function(*args, **kwargs)


def numbers(*shape: int) -> Tensor:
    return torch.rand(shape).add(1.0).requires_grad_()


def token(heads: int = HEADS, length: int = TOKENS) -> Tensor:
    return torch.randn(2, heads, length, WIDTH).requires_grad_()


def test_the_mode_sees_what_an_operator_calls():
    x, sigma = token().mT.contiguous().mT, numbers(HEADS)
    with collected(), SmallKernels() as small:
        gkalib.smooth(x, kernel=kernels.Gaussian(sigma), method="fused")
    assert small.names == ["clone"]  # so that the numbers of a row lie side by side


SIGMAS = {"a head": lambda: numbers(HEADS), "one": lambda: numbers(), "a number": lambda: 2.0}
LAGS = {"dot product": lambda sigma: kernels.ExpDot(), "Gaussian": kernels.Gaussian}
TABLES = {
    "table": lambda: kernels.LagTable(HEADS, TOKENS),
    "bank": lambda: kernels.DecayingPeriodicBank(HEADS),
    "alibi": lambda: kernels.ALiBi(HEADS),
    "t5": lambda: kernels.T5Buckets(HEADS),
    "kerple": lambda: kernels.Kerple(HEADS),
}
FORMED = {
    "alibi": (["mul"], []),
    "t5": (["index_select"], ["mm", "sum"]),
    "kerple": (
        ["exp", "exp", "neg", "abs", "mul", "log1p", "mul"],
        ["sum", "mul", "mul", "sum", "add", "div", "mul", "sum", "neg", "mul", "mul"],
    ),
}
"""What forms a table that no program does, and its gradient, where it is not the one sum."""
INPUTS = [
    ("one tensor", ""),
    ("three", ""),
    ("grouped", ""),
    *((name, table) for name in LAGS for table in TABLES),
]


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("inputs", "lags"), INPUTS)
def test_forward_none_backward_two(inputs: str, lags: str, causal: bool, sigma: str):
    """The gradient of a table of lags is one sum, and σ's another; a bank's is a program's.

    What a table is formed of before its parameters enter is kept.
    """
    given = SIGMAS[sigma]()
    kernel = LAGS.get(inputs, kernels.Gaussian)(given)
    table = TABLES[lags]() if lags else None
    kernel = kernel * table if table else kernel
    groups = 1 if inputs == "grouped" else HEADS
    tensors = (token(),) if inputs == "one tensor" else (token(), token(groups), token(groups))
    wanted = [*tensors, *([given] if isinstance(given, Tensor) and inputs != "dot product" else [])]
    wanted += [*table.parameters()] if table else []
    mask = masks.Causal() if causal else None
    with collected():
        out = gkalib.smooth(*tensors, kernel=kernel, mask=mask, method="fused")
        torch.autograd.grad(out.sum(), wanted)  # numbers reach the device once
        with SmallKernels() as forward:
            out = gkalib.smooth(*tensors, kernel=kernel, mask=mask, method="fused")
        grad_out = torch.ones(out.shape)
        with SmallKernels() as backward:
            torch.autograd.grad(out, wanted, grad_out)
    of_forward, of_table = FORMED.get(lags, ([], ["sum"] if table else []))
    assert forward.names == of_forward
    of_sigma = ["sum"] if any(given is one for one in wanted) else []
    assert sorted(backward.names) == sorted(of_sigma + of_table)


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("lags", ["", *TABLES])
@torch.no_grad()
def test_a_step_of_decoding(sigma: str, lags: str):
    """A row of lags that no program forms is turned around by one more."""
    kernel, query, key = kernels.Gaussian(SIGMAS[sigma]()), token(length=1), token()
    kernel = kernel * TABLES[lags]() if lags else kernel
    with collected():
        gkalib.smooth(query, key, key, kernel, mask=masks.Causal(), method="fused")
        with SmallKernels() as small:
            gkalib.smooth(query, key, key, kernel, mask=masks.Causal(), method="fused")
    turned = [] if lags in ("", "bank") else ["index_select"]
    assert small.names == FORMED.get(lags, ([],))[0] + turned
