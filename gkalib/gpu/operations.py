"""The problems that have fused operations, each with its parameters: what is checked on a device."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from gkalib.kernels import DecayingPeriodicBank, ExpDot, Gaussian, Kernel, Kerple, LagTable
from gkalib.masks import Causal, Document, KeyPadding, Mask, Window
from gkalib.normalizers import Normalizer, RowOperator, RowSum, Unnormalized
from gkalib.smoothing import smooth
from gkalib.smoothing.fused import Fused

Sizes = tuple[int, int, int, int, int, int, int]


@dataclass(frozen=True)
class Check:
    """What one comparison is made on.

    Args:
        batch, heads, groups, queries, keys, width, value_width: sizes; ``groups`` is how many heads keys and
            values have.
        mask: a name in MASKS.
        dtype: of query, key and value.
        spread: factor on queries and keys; 3 makes scores nine times as large, so that their largest matters.
    """

    batch: int
    heads: int
    groups: int
    queries: int
    keys: int
    width: int
    value_width: int
    mask: str = "all"
    dtype: str = "float32"
    spread: float = 1.0


def _padding(check: Check, device: torch.device) -> Mask:
    return KeyPadding(torch.linspace(check.keys / 3, check.keys, check.batch, device=device).long())


def _documents(check: Check, device: torch.device) -> Mask:
    return Document((torch.arange(check.keys, device=device) * 3 // check.keys).expand(check.batch, -1))


def _window(check: Check) -> Mask:
    return Window(max(2, check.keys // 5))


MASKS: dict[str, Callable[[Check, torch.device], Mask | None]] = {
    "all": lambda check, device: None,
    "causal": lambda check, device: Causal(),
    "window": lambda check, device: _window(check),
    "causal-window": lambda check, device: Causal() & _window(check),
    "padding": _padding,
    "window-padding": lambda check, device: _window(check) & _padding(check, device),  # some rows see no key
    "documents": lambda check, device: _documents(check, device) & Causal(),
}


class Operation(nn.Module, ABC):
    """One kind of problem that has fused operations, with the parameters that it learns.

    ``proves`` is what ``auto`` may take where this is right, as the fused operations name it.
    Where ``halves`` is set it has programs of its own for 16 bits only. Where ``ordered`` is not, a backward
    pass of five products runs, whose sums come in any order. It is checked on ``sizes``, in the
    order of a Check, where it has any, else on the common ones. ``stand_ins`` are the programs that run in
    the place of plain ones; without the tuple those run that the table ships.

    Args:
        check: for their sizes.
    """

    masks: tuple[str, ...] = tuple(MASKS)
    proves = "smooth"
    one_tensor = False
    grouped = True
    gradients = True
    spreads: tuple[float, ...] = (1.0, 3.0)
    halves = False
    ordered = True
    sizes: tuple[Sizes, ...] = ()
    stand_ins: tuple[str, ...] | None = None

    def __init__(self, check: Check):
        super().__init__()

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Mask | None, method: str) -> Tensor:
        chosen = Fused(ordered=self.ordered) if method == "fused" else method
        return smooth(
            query, key, value, self.kernel(), mask=mask, normalizer=self.normalizer(), method=chosen
        )

    def programs(self) -> AbstractContextManager:
        """Within it the programs that are meant run, forward and backward."""
        if self.stand_ins is None:
            return nullcontext()
        from gkalib.smoothing.fused.configs import standing_in  # imports Triton

        return standing_in(*self.stand_ins)

    @abstractmethod
    def kernel(self) -> Kernel:
        """The similarity, made of the parameters."""

    def normalizer(self) -> Normalizer:
        """From scores to weights."""
        return RowSum()


class Rbf(Operation):
    """A Gaussian of separate queries and keys, a bandwidth a head."""

    def __init__(self, check: Check):
        super().__init__(check)
        self.sigma = nn.Parameter(torch.linspace(0.4, 0.9, check.heads) * check.width**0.5)

    def kernel(self) -> Kernel:
        return Gaussian(self.sigma)


class Gka(Rbf):
    """A Gaussian of one tensor."""

    masks = ("all", "causal", "window", "causal-window", "documents")
    proves = "gka"
    one_tensor = True
    grouped = False
    stand_ins = ()


@final
class GkaSpecialized(Gka):
    """The same by warp-specialized programs, which it has without a mask."""

    masks = ("all",)
    halves = True
    sizes = (
        (2, 3, 3, 197, 197, 64, 64),
        (1, 4, 4, 300, 300, 128, 128),
        (3, 2, 2, 64, 64, 64, 64),
        (2, 1, 1, 1030, 1030, 64, 64),
        (1, 2, 2, 2048, 2048, 128, 128),
    )
    stand_ins = ("gka_forward_specialized", "gka_backward_specialized")


@final
class GkaDescribed(Gka):
    """The same by a forward program that reads through a descriptor made by the host."""

    halves = True
    sizes = (
        (1, 4, 4, 300, 300, 128, 128),
        (2, 2, 2, 1030, 1030, 128, 128),
        (1, 2, 2, 2048, 2048, 128, 128),
        (2, 3, 3, 512, 512, 128, 128),
    )
    stand_ins = ("gka_forward_described",)


@final
class GkaUnordered(Gka):
    """The same with a backward pass of five products, whose sums come in any order."""

    masks = ("causal", "causal-window", "documents")
    halves = True
    ordered = False
    sizes = (
        (2, 3, 3, 300, 300, 64, 64),
        (1, 2, 2, 1030, 1030, 128, 128),
        (1, 2, 2, 512, 512, 128, 128),
        (3, 2, 2, 64, 64, 64, 64),
    )


@final
class GkaHead(Gka):
    """The same with a backward pass of one program for a whole head, which short problems have."""

    masks = ("all",)
    halves = True
    sizes = ((2, 3, 3, 197, 197, 64, 64), (3, 2, 2, 64, 64, 64, 64), (1, 4, 4, 256, 256, 64, 64))
    stand_ins = ("gka_backward_head",)


@final
class GkaEps(Gka):
    """A Gaussian of one tensor with an ε beside the sum of a row."""

    proves = "gka-eps"
    stand_ins = None

    def normalizer(self) -> Normalizer:
        return RowSum(eps=0.5)


@final
class RbfUnordered(Rbf):
    """A Gaussian of separate queries and keys with a backward pass of five products, in any order."""

    halves = True
    ordered = False
    sizes = (
        (2, 3, 3, 300, 300, 64, 64),
        (1, 4, 2, 1030, 1030, 128, 128),
        (2, 4, 1, 77, 210, 64, 64),
        (1, 2, 2, 512, 512, 128, 128),
    )


@final
class RbfUnnormalized(Rbf):
    """A Gaussian whose weights are not divided by their sum, and are all too small if scores are large."""

    proves = "smooth-unnormalized"
    spreads = (1.0,)

    def normalizer(self) -> Normalizer:
        return Unnormalized()


@final
class RbfTable(Rbf):
    """The same Gaussian with a free number for each lag."""

    def __init__(self, check: Check):
        super().__init__(check)
        self.table = LagTable(check.heads, max(check.queries, check.keys))
        nn.init.normal_(self.table.bias)

    def kernel(self) -> Kernel:
        return super().kernel() * self.table


@final
class Decode(Rbf):
    """One query against a cache."""

    proves = "decode"
    masks = ("all", "window", "padding")
    gradients = False


class Softmax(Operation):
    """The dot product."""

    def kernel(self) -> Kernel:
        return ExpDot()


@final
class SoftmaxUnordered(Softmax):
    """The same with a backward pass of five products, in any order."""

    halves = True
    ordered = False
    sizes = RbfUnordered.sizes


class Gpa(Operation):
    """The dot product with a bank of kernels of the lag."""

    def __init__(self, check: Check):
        super().__init__(check)
        self.bank = DecayingPeriodicBank(check.heads, 8, sigma=0.3, length=20.0)

    def kernel(self) -> Kernel:
        return ExpDot() * self.bank


@final
class DecodeGpa(Gpa):
    """One query against a cache, with a bank."""

    proves = "decode"
    masks = Decode.masks
    gradients = False


@final
class DotKerple(Operation):
    """The dot product with KERPLE's power of the lag."""

    def __init__(self, check: Check):
        super().__init__(check)
        self.power = Kerple(check.heads)

    def kernel(self) -> Kernel:
        return ExpDot() * self.power


@final
class Karat(Operation):
    """A learned operator on rows of scores."""

    proves = "rows"
    masks = ("all",)
    grouped = False
    spreads = (1.0,)

    def __init__(self, check: Check):
        super().__init__(check)
        self.operator = RowOperator(check.heads, check.keys)

    def kernel(self) -> Kernel:
        return ExpDot()

    def normalizer(self) -> Normalizer:
        return self.operator


OPERATIONS: dict[str, type[Operation]] = {
    "gka-specialized": GkaSpecialized,
    "gka-described": GkaDescribed,
    "gka-unordered": GkaUnordered,
    "gka-head": GkaHead,
    "gka": Gka,
    "gka-eps": GkaEps,
    "rbf": Rbf,
    "rbf-unordered": RbfUnordered,
    "rbf-unnormalized": RbfUnnormalized,
    "rbf-table": RbfTable,
    "softmax": Softmax,
    "softmax-unordered": SoftmaxUnordered,
    "gpa": Gpa,
    "kerple": DotKerple,
    "karat": Karat,
    "decode": Decode,
    "decode-gpa": DecodeGpa,
}
