"""Whether each fused operation is right on a card, ``pytest -m gpu``; Triton's interpreter rehearses it here.

Outputs and gradients are held to the reference in float64, in the types that the device computes, and the
same problem put differently has to give the same.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from gkalib import kernels, normalizers
from gkalib.smoothing import smooth
from tests.cases import MASKS
from tests.tolerance import close

CARD = torch.cuda.is_available()
TYPES = (torch.bfloat16, torch.float16, torch.float32) if CARD else (torch.float16, torch.float32)
ON_A_CARD = pytest.mark.skipif(not CARD, reason="the interpreter has neither streams nor graphs: a card has")
Sizes = tuple[int, int, int, int, int, int, int]
SMALL: tuple[Sizes, ...] = ((1, 2, 2, 19, 19, 16, 16), (1, 2, 1, 9, 21, 9, 16))
LARGE: tuple[Sizes, ...] = (
    (2, 3, 3, 197, 197, 64, 64),
    (1, 4, 2, 300, 300, 128, 128),
    (2, 2, 2, 77, 210, 80, 48),
    (1, 2, 2, 131, 131, 33, 33),
    (1, 2, 1, 1030, 1030, 256, 256),
    (2, 2, 2, 65, 513, 16, 16),
)
"""Batch, heads, groups of keys, queries, keys, width of keys and of values."""
INTERVALS = ("none", "causal", "window", "causal-window", "document")
PADDED = (*INTERVALS, "padding", "causal-padding")


@dataclass(frozen=True)
class Operation:
    """One kind of problem that has fused operations.

    Args:
        kernel: from heads, width and keys.
        normalizer: from heads and keys.
        masks: under which it is compared.
        one_tensor, one_token: whether query, key and value are the same, or there is one query.
        grouped: whether heads may share keys and values.
        sizes: on a card.
    """

    kernel: Callable[[int, int, int], kernels.Kernel]
    normalizer: Callable[[int, int], normalizers.Normalizer] = lambda heads, keys: normalizers.RowSum()
    masks: tuple[str, ...] = PADDED
    one_tensor: bool = False
    one_token: bool = False
    grouped: bool = True
    sizes: tuple[Sizes, ...] = LARGE


def _gaussian(heads: int, width: int, keys: int) -> kernels.Kernel:
    """A bandwidth a head, at which weights neither vanish nor are all alike."""
    return kernels.Gaussian(torch.linspace(0.4, 0.9, heads) * width**0.5, learn=True)


def _table(heads: int, width: int, keys: int) -> kernels.Kernel:
    made = kernels.LagTable(heads, keys)
    torch.nn.init.normal_(made.bias)
    return _gaussian(heads, width, keys) * made


def _bank(heads: int, width: int, keys: int) -> kernels.Kernel:
    return kernels.ExpDot() * kernels.DecayingPeriodicBank(heads, 8, sigma=0.3, length=20.0)


ONE = {"kernel": _gaussian, "masks": INTERVALS, "one_tensor": True, "grouped": False}
TOKEN = {"masks": ("none", "window", "padding"), "one_token": True}
OPERATIONS = {
    "gka": Operation(**ONE),
    "gka-eps": Operation(**ONE, normalizer=lambda h, m: normalizers.RowSum(eps=0.5)),
    "rbf": Operation(_gaussian),
    "rbf-unnormalized": Operation(_gaussian, lambda h, m: normalizers.Unnormalized()),
    "rbf-table": Operation(_table),
    "softmax": Operation(lambda h, d, m: kernels.ExpDot()),
    "gpa": Operation(_bank),
    "kerple": Operation(lambda h, d, m: kernels.ExpDot() * kernels.Kerple(h)),
    "karat": Operation(
        lambda h, d, m: kernels.ExpDot(), lambda h, m: normalizers.RowOperator(h, m), ("none",), grouped=False
    ),
    "decode": Operation(_gaussian, **TOKEN),
    "decode-gpa": Operation(_bank, **TOKEN),
}


class Posed(torch.nn.Module):
    """An operation on random inputs that lie in memory as projections leave them: b, n, h, width."""

    def __init__(self, name: str, sizes: Sizes, mask: str, dtype: torch.dtype, device: torch.device):
        super().__init__()
        self.operation = of = OPERATIONS[name]
        b, h, g, n, m, d, e = sizes
        g = g if of.grouped else h
        n, m, e = (m, m, d) if of.one_tensor else (1, m, e) if of.one_token else (n, m, e)

        def tensor(heads: int, length: int, width: int) -> Tensor:
            return torch.randn(b, length, heads, width, device=device).to(dtype).transpose(1, 2)

        self.tensors = {"query": tensor(h, n, d)}
        if not of.one_tensor:
            self.tensors |= {"key": tensor(g, m, d), "value": tensor(g, m, e)}
        self.grad = tensor(h, n, e)
        self.kernel, self.normalizer = of.kernel(h, d, m).to(device), of.normalizer(h, m).to(device)
        with device:
            self.mask = MASKS[mask](b, n, m)

    def forward(self, tensors: dict[str, Tensor] | None = None, method: str = "fused") -> dict[str, Tensor]:
        """The output, and the gradients of the tensors and the parameters."""
        leaves = {name: tensor.detach() for name, tensor in (tensors or self.tensors).items()}
        slots = {"mask": self.mask, "normalizer": self.normalizer, "method": method}
        if self.operation.one_token:
            with torch.no_grad():
                return {"out": smooth(**leaves, kernel=self.kernel, **slots)}
        for leaf in leaves.values():
            leaf.requires_grad_()
        out = smooth(**leaves, kernel=self.kernel, **slots)
        leaves |= {name: each for name, each in self.named_parameters() if each.requires_grad}
        grad = self.grad.to(out.dtype)
        gradients = torch.autograd.grad(out, [*leaves.values()], grad, materialize_grads=True)
        return {"out": out.detach(), **dict(zip(leaves, gradients, strict=True))}

    def exact(self) -> dict[str, Tensor]:
        """The same by the definition, in float64."""
        wide = copy.deepcopy(self).double()
        return wide({name: tensor.double() for name, tensor in self.tensors.items()}, "reference")


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("name", OPERATIONS)
def test_it_is_right(name: str, dtype: torch.dtype, device: torch.device):
    """Each mask and each size at least once; masks and sizes take turns."""
    of = OPERATIONS[name]
    sizes = of.sizes if CARD else SMALL
    for turn in range(max(len(of.masks), len(sizes))):
        posed = Posed(name, sizes[turn % len(sizes)], of.masks[turn % len(of.masks)], dtype, device)
        actual, exact = posed(), posed.exact()
        assert actual.keys() == exact.keys()
        for what in exact:
            of_parameter = what not in ("out", "query", "key", "value")
            close(actual[what], exact[what], dtype, 1 if what == "out" else 10 if of_parameter else 2)


def _posed(name: str, device: torch.device) -> Posed:
    """One problem of an operation, in 16 bits on a card."""
    of = OPERATIONS[name]
    mask = "causal" if "causal" in of.masks else "none"
    return Posed(name, (of.sizes if CARD else SMALL)[0], mask, TYPES[0] if CARD else torch.float32, device)


def _offset(tensor: Tensor) -> Tensor:
    """The same numbers and strides, one number behind where memory begins."""
    memory = tensor.new_empty(tensor.numel() + 1)[1:].view(tensor.transpose(1, 2).shape)
    return memory.copy_(tensor.transpose(1, 2)).transpose(1, 2)


def _spread(tensor: Tensor) -> Tensor:
    """The same numbers, each row with one more behind it."""
    batch, heads, length, width = tensor.shape
    memory = tensor.new_full((batch, length, heads, width + 1), float("nan"))[..., :width]
    return memory.copy_(tensor.transpose(1, 2)).transpose(1, 2)


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_same_call_gives_the_same_bits_and_no_address_matters(name: str, device: torch.device):
    posed = _posed(name, device)
    first = posed()
    for _ in range(19 if CARD else 1):
        again = posed()
        assert all(torch.equal(first[what], again[what]) for what in first)
    for move in (_offset, _spread):  # not aligned to 16 bytes: loads are narrower
        moved = posed({what: move(tensor) for what, tensor in posed.tensors.items()})
        for what in first:
            close(moved[what], first[what].double(), posed.grad.dtype, 2)


@ON_A_CARD
@pytest.mark.parametrize("name", OPERATIONS)
def test_another_stream_and_a_graph_give_the_same_bits(name: str, device: torch.device):
    posed = _posed(name, device)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        fixed = {what: torch.randn_like(tensor) for what, tensor in posed.tensors.items()}
        for _ in range(3):
            posed(fixed)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):
            replayed = posed(fixed)
        for what, tensor in posed.tensors.items():  # written on this stream just before
            fixed[what].copy_(tensor)
        streamed = posed(fixed)
        graph.replay()
    torch.cuda.current_stream().wait_stream(side)
    for what, expected in posed().items():
        assert torch.equal(streamed[what], expected) and torch.equal(replayed[what], expected), what


@pytest.mark.parametrize("name", ["gka", "rbf", "gpa", "karat", "decode"])
def test_the_last_sequences_of_a_large_tensor_are_as_they_are_alone(name: str, device: torch.device):
    """On a card a tensor has more numbers than 32 bits with a sign count."""
    heads, keys, width = (8, 4096 if OPERATIONS[name].one_token else 64, 64) if CARD else (2, 13, 16)
    batch = (2**31 if CARD else 2**10) // (heads * keys * width) + 1
    dtype = TYPES[0] if CARD else torch.float32
    posed = Posed(name, (batch, heads, heads, keys, keys, width, width), "none", dtype, device)
    whole = posed()
    posed.grad = posed.grad[-2:]
    alone = posed({what: tensor[-2:].contiguous() for what, tensor in posed.tensors.items()})
    for what in whole.keys() & {"out", *posed.tensors}:
        close(whole[what][-2:], alone[what].double(), dtype, 2)
    assert all(each.isfinite().all() for each in whole.values())


@pytest.mark.skipif(CARD, reason="these cases are sized for the interpreter")
def test_what_is_wrong_is_found(device: torch.device):
    posed = _posed("rbf", device)
    actual, exact = posed(), posed.exact()
    for off in (1.001 * actual["out"], torch.full_like(actual["out"], torch.nan), actual["out"][:, :1]):
        with pytest.raises(AssertionError):
            close(off, exact["out"], torch.float32, 1)
    row = actual["out"].clone()
    row[0, 0, 3] *= 1.01
    with pytest.raises(AssertionError, match="in row"):
        close(row, exact["out"], torch.float32, 1)
