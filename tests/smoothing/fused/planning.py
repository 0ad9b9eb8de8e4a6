"""Prints for each operator whether its plan starts what the operator does, in a process that may compile.

Nothing is started: the driver is one that only keeps what it is given. A line a case: its name and "ok", or
what differs.
"""

import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from gkalib.smoothing.fused import backward, decode, forward, lag_bias, op, symmetric

STARTED: list[tuple] = []


class Launcher:
    """Keeps the number of programs and the arguments that it would start them with."""

    def __init__(self, source, metadata):
        self.name = metadata.name

    def __call__(self, x, y, z, stream, function, metadata, launch_metadata, enter, leave, *arguments):
        STARTED.append((self.name, x, *arguments))


class Driver:
    """What Triton asks of a driver, for an H100 that is not there."""

    launcher_cls = Launcher

    class utils:
        @staticmethod
        def get_device_properties(device: int) -> dict[str, int]:
            return {"max_shared_mem": 227 * 1024}

        @staticmethod
        def load_binary(*_) -> tuple:
            return object(), 0, 64, 0, 1024

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def vectors(length: int = 40, heads: int = 2, width: int = 64) -> Tensor:
    return torch.randn(2, length, heads, width, dtype=torch.bfloat16).transpose(1, 2)


def numbers(*shape: int) -> Tensor:
    return torch.rand(shape) + 1


def documents() -> tuple[Tensor, Tensor]:
    first = torch.arange(40, dtype=torch.int32)[None] // 8 * 8
    return first, first + 8


def of_one(first: Tensor | None = None, last: Tensor | None = None) -> dict[str, Callable]:
    band = (80, 0, first, last)
    return {
        "smooth": lambda: (op.smooth, vectors(), *[None] * 4, numbers(2), None, *band, True, 0.0),
        "gka_backward": lambda: (
            op.gka_backward, vectors(), vectors(), vectors(), numbers(2, 2, 40), numbers(1), *band,
        ),
    }  # fmt: skip


def of_three(scale: bool, table: bool, first: Tensor | None = None, last: Tensor | None = None) -> dict:
    def slots() -> tuple:
        own = (numbers(2), None, None) if scale else (None, None, numbers(2))
        return *own, numbers(2, 79) if table else None, 80, 0, first, last, True

    return {
        "smooth": lambda: (op.smooth, vectors(), vectors(heads=1), vectors(heads=1), *slots(), 0.0),
        "smooth_backward": lambda: (
            op.smooth_backward, *(vectors() for _ in range(5)), numbers(2, 2, 40), *slots(), table, True,
        ),
    }  # fmt: skip


def of_decoding(one: bool) -> dict[str, Callable]:
    def arguments() -> tuple:
        key = vectors()
        value = key if one else vectors()
        return op.decode, vectors(1), key, value, None, None, numbers(2), None, None, None, True, 0.0

    return {"decode": arguments}


def of_lags() -> dict[str, Callable]:
    return {
        "bank_table": lambda: (op.bank_table, *(numbers(2, 3) for _ in range(4)), 40, 40, None),
        "bank_table at lags": lambda: (
            op.bank_table,
            *(numbers(2, 3) for _ in range(4)),
            1,
            40,
            torch.arange(40),
        ),
        "bank_gradient": lambda: (op.bank_gradient, numbers(2, 79), *(numbers(2, 3) for _ in range(4)), 40),
    }


CASES = {
    "one tensor": of_one(),
    "one tensor, documents": of_one(*documents()),
    "sigma": of_three(scale=False, table=False),
    "table": of_three(scale=True, table=True),
    "documents": of_three(scale=True, table=False, **dict(zip(("first", "last"), documents(), strict=True))),
    "lags": of_lags(),
    "decode one": of_decoding(True),
    "decode two": of_decoding(False),
}
GROWN = ["a cache that grows: decode", "a cache that grows, with lags: decode"]
PYTHON = [
    (symmetric, "gka_backward"), (forward, "smooth_forward"), (backward, "smooth_backward"),
    (lag_bias, "bank_table"), (lag_bias, "bank_gradient"), (decode, "decode"),
]  # fmt: skip


def told(make: Callable) -> list:
    """What a call starts and returns, each tensor by where it comes from."""
    STARTED.clear()
    operator, *given = make()
    results = operator(*given)
    known = [one.data_ptr() for one in given if isinstance(one, Tensor)]

    def named(argument: object) -> object:
        if isinstance(argument, tuple):
            return tuple(map(named, argument))
        if not isinstance(argument, Tensor):
            return str(argument)
        if argument.data_ptr() not in known:
            known.append(argument.data_ptr())
        return known.index(argument.data_ptr())

    results = (results,) if isinstance(results, Tensor) else results
    lines = [tuple(map(named, line)) for line in STARTED]
    return [*lines, *((named(one), one.shape, one.stride(), one.dtype) for one in results)]


@contextmanager
def no_python() -> Iterator[None]:
    """Within it only plans can start programs."""
    kept = [(module, name, getattr(module, name)) for module, name in PYTHON]
    for module, name, _ in kept:
        delattr(module, name)
    try:
        yield
    finally:
        for module, name, function in kept:
            setattr(module, name, function)


def compare(make: Callable) -> str:
    before = told(make)
    try:
        with no_python():
            after = told(make)
    except AttributeError as error:
        return f"no plan: {error}"
    return "ok" if before == after else f"differs: {before} {after}"


def grown(lags: bool) -> str:
    """A cache that has grown by 28 tokens, by the plan of before: only the number of keys is another.

    A row of lags then starts 28 entries earlier.
    """
    store, query, sigma, row = vectors(160), vectors(1), numbers(2), numbers(1, 2, 128) if lags else None

    def step(length: int) -> tuple:
        key, own = store[:, :, :length], row[:, :, 128 - length :] if row is not None else None
        return op.decode, query, key, key, None, None, sigma, own, None, None, True, 0.0

    before = told(lambda: step(100))
    try:
        with no_python():
            after = told(lambda: step(128))
    except AttributeError as error:
        return f"no plan: {error}"
    pairs = zip(itertools.chain(*before), itertools.chain(*after), strict=True)
    changed = {(one, other) for one, other in pairs if one != other}
    return "ok" if changed == {("100", "128")} else f"differs: {changed}"


if __name__ == "__main__":
    driver.set_active(Driver())  # type: ignore[arg-type]
    for case, calls in CASES.items():
        for operator, make in calls.items():
            print(f"{case}: {operator}", compare(make), flush=True)
    for name in GROWN:
        print(name, grown("lags" in name), flush=True)
    sys.exit(0)
