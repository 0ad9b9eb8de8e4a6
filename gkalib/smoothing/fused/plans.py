"""Launch plans: what an operator did for tensors of one kind, done again without finding out what to do.

The first call with tensors of some shapes, strides, types and alignment runs the operator's Python and lists
the memory that it asked for (``launch.empty``), what PyTorch made of tensors (``launch.derived``) and the
programs that it started. The next ones follow the list.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from gkalib.smoothing.fused import configs, launch
from gkalib.smoothing.fused.launch import LAUNCHES, Launch, Size

MOST = 1024
"""So many plans an operator keeps before it starts over."""

NUMBERS = {int, float, bool, type(None)}
"""What an operator's argument may be beside a tensor; to ask whether it is a tensor takes longer."""

GRAIN = 128
"""A plan serves a cache while it grows by so many tokens, split into as many parts as at first."""

Step = Callable[[list[Tensor]], None]
"""Part of a plan; it reads the list of tensors, which starts with those that were given, and fills it."""


class _Place(int):
    """Where a tensor stands in a plan's list."""


@dataclass(frozen=True)
class _SizeOf:
    """A size of the tensor in a place."""

    place: int
    axis: int


class Recorder:
    """Lists the steps of a plan; ``possible`` turns false where something else is read or returned."""

    def __init__(self, given: Sequence[Tensor]):
        self.tensors: list[Tensor] = []  # kept, so that no two have the same memory
        self.memory: dict[int, tuple[torch.Size, tuple[int, ...]]] = {}
        self.steps: list[Callable[[], Step]] = []
        self.possible = True
        self._read: set[int | None] = set()
        self._by_identity: dict[int, int] = {}
        self._by_address: dict[int, int] = {}
        for tensor in given:
            self._add(tensor)
        self.given = len(self.tensors)

    def made(self, tensor: Tensor) -> None:
        """Memory was asked for."""
        place = self._add(tensor)
        self.memory[place] = tensor.shape, tensor.stride()
        self.steps.append(functools.partial(self._allocation, place))

    def derived(self, function: Callable, given: Sequence[Tensor], result: Tensor) -> None:
        """PyTorch made a tensor of others."""
        if id(result) in self._by_identity:
            return
        reads = [self._by_identity.get(id(tensor)) for tensor in given]
        self._read |= {*reads}
        self.steps.append(functools.partial(_derivation, self._add(result), function, reads))

    def started(self, launched: Launch, kernel: Any) -> None:
        """A program was started; ``kernel`` is what it was compiled to, None in the interpreter."""
        names = launched.program.arg_names
        template = [self._template(launched.arguments.get(name)) for name in names]
        if kernel is None or kernel.metadata.global_scratch_size or launched.arguments.keys() - set(names):
            self.possible = False
            return
        runner = kernel[(launched.grid, 1, 1)]
        self.steps.append(functools.partial(_start, launched.name, runner, template))

    def _template(self, argument: Any) -> Any:
        """A program's argument, or group of them, with places in the place of tensors."""
        if isinstance(argument, tuple):
            return tuple(map(self._template, argument))
        if isinstance(argument, Size):
            return _SizeOf(self._template(argument.tensor), argument.axis)
        if not isinstance(argument, Tensor):
            return argument
        place = self._by_address.get(argument.data_ptr())
        self.possible &= place is not None
        return _Place(place or 0)

    def plan(self, results: Sequence[Tensor]) -> "Plan | None":
        """The plan of an operator with these results; None where it cannot be repeated."""
        places = [self._place_of(result) for result in results]
        if not self.possible or None in self._read or len({*places}) < len(places):
            return None
        return Plan([make() for make in self.steps], len(self.tensors) - self.given, places)

    def _place_of(self, result: Tensor) -> int:
        """Where an operator's result stands; memory takes the shape in which it is returned."""
        place, own = self._by_identity.get(id(result), -1), (result.shape, result.stride())
        if place < 0 and (place := self._by_address.get(result.data_ptr(), -1)) in self.memory:
            # What was made of memory may have read it in another shape.
            self.possible &= result.numel() == self.tensors[place].numel() and place not in self._read
            self.memory[place] = own
        self.possible &= place >= self.given and own == self.memory.get(place, own)
        return place

    def _add(self, tensor: Tensor) -> int:
        place = len(self.tensors)
        self.tensors.append(tensor)
        self._by_identity[id(tensor)] = place
        self._by_address.setdefault(tensor.data_ptr(), place)
        return place

    def _allocation(self, place: int) -> Step:
        shape, strides = self.memory[place]
        like = {"dtype": self.tensors[place].dtype, "device": self.tensors[place].device}
        allocate = functools.partial(torch.empty_strided, shape, strides, **like)

        def step(tensors: list[Tensor]) -> None:
            tensors[place] = allocate()

        return step


def _derivation(place: int, function: Callable, reads: list[int]) -> Step:
    def step(tensors: list[Tensor]) -> None:
        tensors[place] = function(*(tensors[each] for each in reads))

    return step


def _places(arguments: Sequence) -> list[tuple[int, int]]:
    """Where among arguments a tensor is to be put, and which."""
    return [(at, one) for at, one in enumerate(arguments) if isinstance(one, _Place)]


def _start(name: str, runner: Callable, template: list) -> Step:
    alone = _places(template)
    sizes = [(at, one.place, one.axis) for at, one in enumerate(template) if isinstance(one, _SizeOf)]
    inside = [(at, _places(one)) for at, one in enumerate(template) if isinstance(one, tuple)]
    groups = [(at, places) for at, places in inside if places]

    def step(tensors: list[Tensor]) -> None:
        own = template.copy()
        for at, place in alone:
            own[at] = tensors[place]
        for at, place, axis in sizes:
            own[at] = tensors[place].shape[axis]
        for at, places in groups:
            group = [*template[at]]
            for index, place in places:
                group[index] = tensors[place]
            own[at] = tuple(group)
        LAUNCHES[name] += 1
        runner(*own)

    return step


class Plan:
    """The steps of an operator and where in the list of tensors its results stand."""

    def __init__(self, steps: list[Step], more: int, places: list[int]):
        self.steps, self.more, self.results = steps, [None] * more, itemgetter(*places)

    def __call__(self, given: list[Tensor]) -> Any:
        """Follow the plan; the operator's tensors are in the order of its arguments."""
        tensors: list[Any] = given + self.more
        with launch.current(given[0].device):
            for step in self.steps:
                step(tensors)
        return self.results(tensors)


def kind_of(arguments: Sequence, growing: Sequence[int] = ()) -> tuple[list[Tensor], tuple]:
    """The tensors among an operator's arguments, and all that a plan depends on.

    Of those that grow along axis 2 it is only the number of whole GRAINs. One tensor given twice is not two
    of a shape.
    """
    tensors, kind, first = [], [], {}
    for at, argument in enumerate(arguments):
        if type(argument) in NUMBERS:
            kind.append(argument)
            continue
        tensors.append(argument)
        address, shape = argument.data_ptr(), argument.shape
        if at in growing:
            shape = (*shape[:2], -(-shape[2] // GRAIN), *shape[3:])
        kind += shape, argument.stride(), argument.dtype, argument.device
        kind += address % 16, first.setdefault(address, at)
    return tensors, tuple(kind)


class Planned:
    """An operator's Python, run in full once for each kind of tensors and then by its plan.

    Args:
        function: of tensors and numbers; it returns a tensor or several, none of them given.
        growing: of its arguments, which tensors may grow along axis 2 while a plan serves; their lengths may
            only be an argument of programs, a Size.
    """

    def __init__(self, function: Callable, growing: Callable[[tuple], Sequence[int]] | None = None):
        self.function, self.growing = function, growing
        self.plans: dict[tuple, Plan | None] = {}

    def __call__(self, *arguments: Any) -> Any:
        if launch.collecting() or configs.are_forced():
            return self.function(*arguments)
        tensors, kind = kind_of(arguments, self.growing(arguments) if self.growing else ())
        plan = self.plans.get(kind)
        if plan is not None:
            return plan(tensors)
        return self.function(*arguments) if kind in self.plans else self._record(arguments, tensors, kind)

    def _record(self, arguments: tuple, tensors: list[Tensor], kind: tuple) -> Any:
        recorder = Recorder(tensors)
        with launch.recorded_by(recorder):
            results = self.function(*arguments)
        if len(self.plans) == MOST:
            self.plans.clear()
        self.plans[kind] = recorder.plan([results] if isinstance(results, Tensor) else results)
        return results
