"""Launch plans: what an operator did for tensors of one kind, done again without finding out what to do.

The first call with tensors of some shapes, strides, types and alignment runs the operator's Python and lists
the memory that it asked for and the programs that it started. The next ones follow the list.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

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

_MEMORY = {
    torch.ops.aten.empty.memory_format,
    torch.ops.aten.empty_like.default,
    torch.ops.aten.empty_strided.default,
    torch.ops.aten.new_empty.default,
    torch.ops.aten.new_empty_strided.default,
}


class _Place(int):
    """Where a tensor stands in a plan's list."""


@dataclass(frozen=True)
class _SizeOf:
    """A size of the tensor in a place."""

    place: int
    axis: int


class Action(NamedTuple):
    """A step that is still to be made, the place that it fills, if any, and those that it reads."""

    fills: int | None
    reads: set[int]
    make: Callable[[], Step]


class Recorder(TorchDispatchMode):
    """Within it the steps of a plan are listed; ``possible`` turns false where one cannot be repeated."""

    def __init__(self, given: Sequence[Tensor]):
        super().__init__()
        self.tensors: list[Tensor] = []  # kept, so that no two have the same memory
        self.memory: dict[int, tuple[torch.Size, tuple[int, ...]]] = {}
        self.actions: list[Action] = []
        self.possible = True
        self._reshaped: set[int] = set()
        self._by_identity: dict[int, int] = {}
        self._by_address: dict[int, int] = {}
        for tensor in given:
            self._add(tensor)
        self.given = len(self.tensors)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        if not isinstance(result, Tensor) or function._schema.is_mutable:
            self.possible = False
        elif id(result) not in self._by_identity:
            place = self._add(result)
            if function in _MEMORY:
                self.memory[place] = result.shape, result.stride()
                self.actions.append(Action(place, set(), functools.partial(self._allocation, place)))
            else:
                given = self._placed(args, kwargs)
                reads = {one for one in (*given[0], *given[1].values()) if isinstance(one, _Place)}
                make = functools.partial(_operation, place, function, *given)
                self.actions.append(Action(place, reads, make))
        return result

    def started(self, launched: Launch, kernel: Any) -> None:
        """A program was started; ``kernel`` is what it was compiled to, None in the interpreter."""
        names = launched.program.arg_names
        reads: set[int] = set()
        template = [self._template(launched.arguments.get(name), reads) for name in names]
        if kernel is None or kernel.metadata.global_scratch_size or launched.arguments.keys() - set(names):
            self.possible = False
            return
        runner = kernel[(launched.grid, 1, 1)]
        self.actions.append(Action(None, reads, functools.partial(_start, launched.name, runner, template)))

    def _template(self, argument: Any, reads: set[int]) -> Any:
        """A program's argument, or group of them, with places in the place of tensors; they are noted."""
        if isinstance(argument, tuple):
            return tuple(self._template(one, reads) for one in argument)
        if isinstance(argument, Size):
            return _SizeOf(self._template(argument.tensor, reads), argument.axis)
        if not isinstance(argument, Tensor):
            return argument
        place = self._by_address.get(argument.data_ptr())
        self.possible &= place is not None
        reads.add(place or 0)
        return _Place(place or 0)

    def plan(self, results: Sequence[Tensor]) -> "Plan | None":
        """The plan of an operator with these results, without what they do not need; None without one."""
        places = self._places_of(results)
        needed, steps = set(places), []
        for action in reversed(self.actions):
            if action.fills is None or action.fills in needed:
                needed |= action.reads
                # Memory has the shape in which it is returned: an operation may have read it in another.
                self.possible &= action.fills is None or not action.reads & self._reshaped
                steps.append(action.make)
        if not self.possible:
            return None
        return Plan([make() for make in reversed(steps)], len(self.tensors) - self.given, places)

    def _places_of(self, results: Sequence[Tensor]) -> list[int]:
        """Where an operator's results stand; memory takes the shape in which it is returned."""
        places = []
        for result in results:
            place = self._by_identity.get(id(result))
            address = self._by_address.get(result.data_ptr())
            if place not in self.memory and address in self.memory:
                place = address
                self.memory[place] = result.shape, result.stride()
                self._reshaped.add(place)
                self.possible &= result.numel() == self.tensors[place].numel()
            self.possible &= place is not None and place >= self.given
            places.append(place)
        return places

    def _add(self, tensor: Tensor) -> int:
        place = len(self.tensors)
        self.tensors.append(tensor)
        self._by_identity[id(tensor)] = place
        self._by_address.setdefault(tensor.data_ptr(), place)
        return place

    def _placed(self, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """The arguments of an operation with places in the place of tensors."""

        def placed(argument: Any) -> Any:
            if isinstance(argument, list | tuple):
                self.possible &= not any(isinstance(one, Tensor) for one in argument)
            if not isinstance(argument, Tensor):
                return argument
            place = self._by_identity.get(id(argument))
            self.possible &= place is not None
            return _Place(place or 0)

        return tuple(map(placed, args)), {name: placed(value) for name, value in kwargs.items()}

    def _allocation(self, place: int) -> Step:
        shape, strides = self.memory[place]
        like = {"dtype": self.tensors[place].dtype, "device": self.tensors[place].device}
        allocate = functools.partial(torch.empty_strided, shape, strides, **like)

        def step(tensors: list[Tensor]) -> None:
            tensors[place] = allocate()

        return step


def _operation(place: int, function: Callable, args: tuple, kwargs: dict) -> Step:
    alone, named = _places(args), [(name, one) for name, one in kwargs.items() if isinstance(one, _Place)]

    def step(tensors: list[Tensor]) -> None:
        own = [*args]
        for at, one in alone:
            own[at] = tensors[one]
        tensors[place] = function(*own, **(kwargs | {name: tensors[one] for name, one in named}))

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
        with launch.recorded_by(recorder), recorder:
            results = self.function(*arguments)
        if len(self.plans) == MOST:
            self.plans.clear()
        self.plans[kind] = recorder.plan([results] if isinstance(results, Tensor) else results)
        return results
