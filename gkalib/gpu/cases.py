"""Problems of every fused operation: what they start, what they are in float64, which rows are wrong."""

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
from gkalib.bench.attention import TOLERANCE, by, reason_of
from gkalib.bench.problems import exact_problem, leaves, upstream, values
from gkalib.smoothing import Fused, Problem, make_problem
from gkalib.smoothing.fused.cards import DIRECTIONS
from gkalib.smoothing.fused.launch import Launch, collected, interpreting

TIMES = {"out": 1, "query": 4, "key": 4, "value": 4}
"""How many times a benchmark's tolerance a row may be off; gradients are sums over products of products."""
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
    """With an ε in two turns of four."""
    return normalizers.RowSum(eps=0.5 * (turn // 2 % 2))


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
    normalizer: Callable[[int, int, int], normalizers.Normalizer] = lambda *_: normalizers.RowSum()
    one: str = ""
    masks: tuple[str, ...] = ("all", "causal", "window", "documents")


OPERATIONS = {
    "gka": Operation((_gaussian,), _row_sum, one="tensor"),
    "smooth": Operation((_dot(),)),
    "smooth-gaussian": Operation(GAUSSIANS),
    "smooth-lags": Operation(LAGS),
    "smooth-gaussian-lags": Operation((lambda *sizes: _gaussian(*sizes) * _bank(*sizes),)),
    "smooth-unnormalized": Operation((_dot(),), lambda *_: normalizers.Unnormalized()),
    "smooth-gaussian-unnormalized": Operation(GAUSSIANS, lambda *_: normalizers.Unnormalized()),
    "decode": Operation((_dot(),), _row_sum, one="token"),
    "decode-gaussian": Operation(GAUSSIANS, _row_sum, one="token"),
    "decode-lags": Operation(LAGS, _row_sum, one="token"),
    "rows": Operation((_dot(),), lambda turn, *sizes: normalizers.RowOperator(*sizes), masks=("all",)),
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

    def problem(
        self, mask: str, length: int, turn: int = 0, *, batch: int = 2, heads: int = 4, device: str = "cpu"
    ) -> Problem:
        """One of random numbers. In odd turns two heads share a key, in every fourth sizes are odd."""
        of, odd = OPERATIONS[self.operation], turn % 4 == 3
        apart = not of.one and self.operation != "rows"
        width, groups = self.width - 3 * odd, heads // 2 if turn % 2 and self.operation != "rows" else heads
        rows = 1 if of.one == "token" else length - 5 * (odd and apart)
        random = torch.Generator().manual_seed(turn)

        def tensor(heads: int, length: int) -> Tensor:
            drawn = torch.randn(batch, length, heads, width, generator=random)
            return drawn.to(device, getattr(torch, self.dtype)).transpose(1, 2)  # as projections leave it

        query, key, value = tensor(heads, rows), None, None
        if of.one != "tensor":
            key, value = tensor(groups, length), tensor(groups, length)
        with torch.device(device):
            kernel = of.kernels[turn % len(of.kernels)](heads, width, length)
            normalizer, rule = of.normalizer(turn, heads, length), MASKS[mask](length)
        if of.one == "token":
            kernel.requires_grad_(False)
        return make_problem(query, key, value, kernel, mask=rule, normalizer=normalizer)

    def problems(self, lengths: Sequence[int], **sizes) -> Iterator[Problem]:
        """Every mask at every length; kernels, shared heads and odd sizes take turns."""
        pairs = itertools.product(lengths, OPERATIONS[self.operation].masks)
        for turn, (length, mask) in enumerate(pairs):
            yield self.problem(mask, length, turn, **sizes)

    def launches(self, given: Problem) -> dict[str, list[Launch]]:
        """The programs that each direction of a problem starts; nothing runs.

        Raises:
            ValueError: in the interpreter.
        """
        if interpreting():
            raise ValueError(
                "gpu: programs were imported for the interpreter: unset TRITON_INTERPRET and start again, "
                "behind `if __name__ == '__main__'`, since processes that compile import what started them"
            )
        backward = len(self.directions) > 1
        with collected() as launched, torch.set_grad_enabled(backward):
            named = leaves(given)
            out = Fused()(given)
            forward = list(launched)
            if backward:
                torch.autograd.grad(out, [*named.values()], torch.empty_like(out), allow_unused=True)
        return dict(zip(self.directions, (forward, launched[len(forward) :]), strict=False))

    def exact(self, given: Problem) -> dict[str, Tensor]:
        """The output and the gradients by the definition in float64."""
        return values(by("dense"), exact_problem(given), upstream(given), backward=len(self.directions) > 1)


SAMPLES = {
    "gka_forward": ("gka", "forward"),
    "gka_backward": ("gka", "backward"),
    "rbf_forward": ("smooth-gaussian", "forward"),
    "rbf_backward": ("smooth-gaussian", "backward"),
    "softmax_forward": ("smooth", "forward"),
    "softmax_backward": ("smooth", "backward"),
    "gpa_forward": ("smooth-lags", "forward"),
    "gpa_backward": ("smooth-lags", "backward"),
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
}
"""What is compiled ahead of time, operation and direction by a name as records have it."""


class Sample(NamedTuple):
    """One of SAMPLES at a width, a type, a mask and a number of tokens, as records have it."""

    case: str
    width: int = 64
    dtype: str = "bfloat16"
    mask: str = "all"
    length: int = 1024

    def launches(self) -> list[Launch]:
        """The programs that it starts; those of the bank have names of their own."""
        operation, direction = SAMPLES[self.case]
        need = Need(operation, self.dtype, self.width)
        given = need.problem(self.mask, self.length, turn=int(self.case == "group_decode"))
        if self.case == "gka_decode":  # where keys are the values
            given = replace(given, grouped_value=given.grouped_key)
        if operation == "rows":  # a rank that fills what a product takes
            given = replace(given, normalizer=normalizers.RowOperator(4, self.length, rank=16))
        started, of_bank = need.launches(given)[direction], self.case.startswith("bank")
        return [launch for launch in started if launch.name.startswith("bank") == of_bank]


def compare(actual: dict[str, Tensor], exact: dict[str, Tensor], dtype: str) -> tuple[float, str]:
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
        errors = errors / torch.maximum(norms, usual) / (TIMES.get(name, PARAMETER) * TOLERANCE[dtype])
        errors = errors.nan_to_num(math.inf)
        if (error := errors.max().item()) > worst:
            worst, what = error, "the output" if name == "out" else f"the gradient of {name}"
            off = f"row {int(errors.argmax())} of {what} is off by {error:.3g} times what it may be"
            why = off if error > 1 else ""
    return worst, why


def compare_all(
    posed: Sequence[tuple[Problem, dict[str, Tensor]]], direction: str, dtype: str
) -> tuple[float, str]:
    """The same over problems with their exact results, for one direction; what does not run is wrong."""
    worst, why = 0.0, ""
    for given, exact in posed:
        try:
            actual = values(by("fused"), given, upstream(given), backward=len(exact) > 1)
        except Exception as error:  # whatever a compiler or a card says no with
            return math.inf, f"it does not run: {reason_of(error)}"
        wanted = {name: each for name, each in exact.items() if (name == "out") == (direction == "forward")}
        error, fault = compare(actual, wanted, dtype)
        worst, why = max(worst, error), why or fault
    return worst, why
