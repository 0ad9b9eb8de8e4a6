"""Problems of every fused operation: what they start, what they are in float64, which rows are wrong."""

import copy
import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, final

import torch
from torch import Tensor

from gkalib import kernels, masks, normalizers
from gkalib.smoothing import Fused, Problem, compute_output, make_problem
from gkalib.smoothing.fused.cards import DIRECTIONS
from gkalib.smoothing.fused.launch import Launch, collected, interpreting

ROW = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 2e-2}
"""What a row of an output may be off, as ``compare`` measures it."""
TIMES = {"out": 1, "query": 4, "key": 4, "value": 4}
"""How many times that gradients may be, which are sums over products of products."""
PARAMETER = 10
"""Likewise those of parameters, which are sums over all rows too."""

MASKS: dict[str, Callable[[int], masks.Mask | None]] = {
    "all": lambda keys: None,
    "causal": lambda keys: masks.Causal(),
    "window": lambda keys: masks.Causal() & masks.Window(keys // 3),
    "documents": lambda keys: masks.Document(torch.arange(keys) // (keys // 3)),
    "band": lambda keys: masks.Causal() & masks.Window(keys // 2),
    "given": lambda keys: masks.Causal() & masks.Document(torch.arange(keys) // (keys // 2)),
}
Make = Callable[[int, int, int], kernels.Kernel]
"""A kernel from heads, width and keys."""


def _gaussian(heads: int, width: int, keys: int) -> kernels.Kernel:
    """A bandwidth a head, at which weights neither vanish nor are all alike."""
    return kernels.Gaussian(torch.linspace(0.4, 0.9, heads) * width**0.5, learn=True)


def _bank(heads: int, width: int, keys: int) -> kernels.Kernel:
    return kernels.DecayingPeriodicBank(heads, sigma=0.1, length=20.0)


def _table(heads: int, width: int, keys: int) -> kernels.Kernel:
    made = kernels.LagTable(heads, keys)
    made.bias.data.normal_()
    return made


def _dot(*others: Make) -> Make:
    """The dot product, times other kernels."""
    return lambda *sizes: functools.reduce(operator.mul, (made(*sizes) for made in others), kernels.ExpDot())


GAUSSIANS = _gaussian, _dot(_gaussian)
LAGS = _dot(_bank), _dot(lambda heads, width, keys: kernels.Kerple(heads)), _dot(_table)


def _row_sum(turn: int, heads: int, keys: int) -> normalizers.Normalizer:
    return normalizers.RowSum()


def _row_sum_eps(turn: int, heads: int, keys: int) -> normalizers.Normalizer:
    """With an ε in two turns of four."""
    return normalizers.RowSum(eps=0.5 * (turn // 2 % 2))


def _unnormalized(turn: int, heads: int, keys: int) -> normalizers.Normalizer:
    return normalizers.Unnormalized()


def _rows(turn: int, heads: int, keys: int) -> normalizers.Normalizer:
    return normalizers.RowOperator(heads, keys)


@final
@dataclass(frozen=True)
class Operation:
    """A kind of problem that has fused programs of its own.

    Args:
        kernels: which take turns.
        normalizer: of turn, heads and keys.
        one: ``tensor`` where query, key and value are one, ``token`` where there is one query.
        masks: under which it is compared.
    """

    kernels: tuple[Make, ...]
    normalizer: Callable[[int, int, int], normalizers.Normalizer] = _row_sum
    one: str = ""
    masks: tuple[str, ...] = ("all", "causal", "window", "documents")


OPERATIONS = {
    "gka": Operation((_gaussian,), _row_sum_eps, one="tensor"),
    "smooth": Operation((_dot(),)),
    "smooth-gaussian": Operation(GAUSSIANS),
    "smooth-lags": Operation(LAGS),
    "smooth-gaussian-lags": Operation((lambda *sizes: _gaussian(*sizes) * _bank(*sizes),)),
    "smooth-unnormalized": Operation((_dot(),), _unnormalized),
    "smooth-gaussian-unnormalized": Operation(GAUSSIANS, _unnormalized),
    "decode": Operation((_dot(),), _row_sum_eps, one="token"),
    "decode-gaussian": Operation(GAUSSIANS, _row_sum_eps, one="token"),
    "decode-lags": Operation(LAGS, _row_sum_eps, one="token"),
    "rows": Operation((_dot(),), _rows, masks=("all",)),
}
"""By their names, as ``fused.operation_of`` has them."""


class Need(NamedTuple):
    """An operation at a type and width of head."""

    operation: str
    dtype: str
    width: int

    @property
    def directions(self) -> tuple[str, ...]:
        """Forward, and backward but for decoding."""
        return DIRECTIONS[:1] if OPERATIONS[self.operation].one == "token" else DIRECTIONS

    def case(
        self, mask: str, length: int, turn: int = 0, *, batch: int = 2, heads: int = 4, device: str = "cpu"
    ) -> "Case":
        """A problem of random numbers. In odd turns two heads share a key, in every fourth sizes are odd."""
        of, odd = OPERATIONS[self.operation], turn % 4 == 3
        apart = not of.one and self.operation != "rows"
        width, groups = self.width - 3 * odd, heads // 2 if turn % 2 and self.operation != "rows" else heads
        rows = 1 if of.one == "token" else length - 5 * (odd and apart)
        random = torch.Generator().manual_seed(turn)

        def tensor(heads: int, length: int) -> Tensor:
            drawn = torch.randn(batch, length, heads, width, generator=random)
            return drawn.to(device, getattr(torch, self.dtype)).transpose(1, 2)  # as projections leave it

        tensors = {"query": tensor(heads, rows)}
        if of.one != "tensor":
            tensors |= {"key": tensor(groups, length), "value": tensor(groups, length)}
        with torch.device(device):
            kernel = of.kernels[turn % len(of.kernels)](heads, width, length)
            normalizer, rule = of.normalizer(turn, heads, length), MASKS[mask](length)
        return Case(tensors, kernel, normalizer, rule, tensor(heads, rows), self.directions)

    def cases(self, lengths: Sequence[int], **sizes) -> Iterator["Case"]:
        """Every mask at every length; kernels, shared heads and odd sizes take turns."""
        pairs = itertools.product(lengths, OPERATIONS[self.operation].masks)
        for turn, (length, mask) in enumerate(pairs):
            yield self.case(mask, length, turn, **sizes)


@final
@dataclass(frozen=True)
class Case:
    """A problem, what a gradient of its output begins with, and the directions that it has."""

    tensors: dict[str, Tensor]
    kernel: kernels.Kernel
    normalizer: normalizers.Normalizer
    mask: masks.Mask | None
    grad: Tensor
    directions: tuple[str, ...]

    def problem(self) -> tuple[Problem, dict[str, Tensor]]:
        """The problem, and by name all that has a gradient."""
        backward, slots = len(self.directions) > 1, {"mask": self.mask, "normalizer": self.normalizer}
        leaves = {name: tensor.detach().requires_grad_(backward) for name, tensor in self.tensors.items()}
        learned = dict(self.kernel.named_parameters()) | dict(self.normalizer.named_parameters())
        learned = {name: each for name, each in learned.items() if each.requires_grad}
        if not backward:
            self.kernel.requires_grad_(False)
        given = leaves["query"], leaves.get("key"), leaves.get("value")
        return make_problem(*given, self.kernel, **slots), leaves | learned if backward else {}

    def values(self, method: str) -> dict[str, Tensor]:
        """The output by a method, and the gradients of the tensors and of what learns."""
        problem, leaves = self.problem()
        out = compute_output(problem, method)
        if not leaves:
            return {"out": out}
        grad = self.grad.to(out.dtype)
        gradients = torch.autograd.grad(out, [*leaves.values()], grad, materialize_grads=True)
        return {"out": out.detach(), **dict(zip(leaves, gradients, strict=True))}

    def launches(self) -> dict[str, list[Launch]]:
        """The programs that each direction starts; nothing runs.

        Raises:
            ValueError: in the interpreter.
        """
        if interpreting():
            raise ValueError(
                "gpu: programs were imported for the interpreter: unset TRITON_INTERPRET and start again, "
                "behind `if __name__ == '__main__'`, since processes that compile import what started them"
            )
        with collected() as launched:
            problem, leaves = self.problem()
            out = Fused()(problem)
            forward = list(launched)
            if leaves:
                torch.autograd.grad(out, [*leaves.values()], self.grad, allow_unused=True)
        return dict(zip(self.directions, (forward, launched[len(forward) :]), strict=False))

    def exact(self) -> dict[str, Tensor]:
        """The same by the definition in float64."""
        kernel, normalizer = copy.deepcopy(self.kernel).double(), copy.deepcopy(self.normalizer).double()
        tensors = {name: tensor.double() for name, tensor in self.tensors.items()}
        wide = replace(self, tensors=tensors, kernel=kernel, normalizer=normalizer, grad=self.grad.double())
        return wide.values("dense")


SAMPLES = {
    **{
        f"{name}_{direction}": (operation, direction)
        for name, operation in {
            "gka": "gka", "rbf": "smooth-gaussian", "softmax": "smooth", "gpa": "smooth-lags",
        }.items()
        for direction in DIRECTIONS
    },
    "bank_table": ("smooth-lags", "forward"),
    "bank_gradient": ("smooth-lags", "backward"),
    "unnormalized_forward": ("smooth-gaussian-unnormalized", "forward"),
    "unnormalized_backward": ("smooth-gaussian-unnormalized", "backward"),
    "row_features": ("rows", "forward"),
    "row_features_backward": ("rows", "backward"),
    "gka_decode": ("decode-gaussian", "forward"),
    "rbf_decode": ("decode-gaussian", "forward"),
    "gpa_decode": ("decode-lags", "forward"),
    "group_decode": ("decode", "forward"),
}  # fmt: skip
"""What is compiled ahead of time, operation and direction by a name as records have it."""


@final
@dataclass(frozen=True)
class Sample:
    """One of SAMPLES at a width, a type, a mask and a number of tokens."""

    name: str
    width: int = 64
    dtype: torch.dtype = torch.bfloat16
    mask: str = "all"
    length: int = 1024

    @property
    def where(self) -> tuple[str, int, str, str, int]:
        """Name, width, type, mask and length, as records have them."""
        return self.name, self.width, str(self.dtype).removeprefix("torch."), self.mask, self.length

    def launches(self) -> list[Launch]:
        """The programs that it starts; those of the bank have names of their own."""
        operation, direction = SAMPLES[self.name]
        need = Need(operation, str(self.dtype).removeprefix("torch."), self.width)
        case = need.case(self.mask, self.length, turn=int(self.name == "group_decode"))
        if self.name == "gka_decode":  # where keys are the values
            case.tensors.pop("value")
        if operation == "rows":  # a rank that fills what a product takes
            case = replace(case, normalizer=normalizers.RowOperator(4, self.length, rank=16))
        started, of_bank = case.launches()[direction], self.name.startswith("bank")
        return [launch for launch in started if launch.name.startswith("bank") == of_bank]


def compare(actual: dict[str, Tensor], exact: dict[str, Tensor], dtype: torch.dtype) -> tuple[float, str]:
    """The worst row's error in units of what it may be, and what is wrong, if that is above one.

    An error is a row's ‖actual − exact‖, in units of its own ‖exact‖ or of the root mean square of all rows',
    whichever is more: a norm over everything would hide one wrong row among a thousand.
    """
    worst, why = 0.0, ""
    for name, wanted in exact.items():
        rows = wanted.flatten(0, -2) if wanted.ndim > 1 else wanted[None]
        norms = rows.norm(dim=-1)
        usual = norms.square().mean().sqrt().clamp(min=1e-6)
        errors = (actual[name].double().reshape(rows.shape) - rows).norm(dim=-1)
        errors = errors / torch.maximum(norms, usual) / (TIMES.get(name, PARAMETER) * ROW[dtype])
        errors = errors.nan_to_num(math.inf)
        if (error := errors.max().item()) > worst:
            worst, what = error, "the output" if name == "out" else f"the gradient of {name}"
            off = f"row {int(errors.argmax())} of {what} is off by {error:.3g} times what it may be"
            why = off if error > 1 else ""
    return worst, why


def compare_all(
    posed: Sequence[tuple[Case, dict[str, Tensor]]], direction: str, dtype: torch.dtype
) -> tuple[float, str]:
    """The same over cases with their exact results, for one direction; what does not run is wrong."""
    worst, why = 0.0, ""
    for case, exact in posed:
        try:
            actual = case.values("fused")
        except Exception as error:  # whatever a compiler or a card says no with
            return math.inf, f"it does not run: {first_line(error)}"
        wanted = {name: each for name, each in exact.items() if (name == "out") == (direction == "forward")}
        error, fault = compare(actual, wanted, dtype)
        worst, why = max(worst, error), why or fault
    return worst, why


def first_line(error: Exception) -> str:
    """What an error says, short enough for a table."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:100]
