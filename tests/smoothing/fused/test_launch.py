"""Where a program starts: on its tensors' device; and what the interpreter needs."""

import importlib
import pkgutil

import numpy as np
import pytest
import torch
import triton
from torch._subclasses import FakeTensorMode
from triton.runtime.interpreter import InterpretedFunction

from gkalib.smoothing import fused
from gkalib.smoothing.fused.configs import Config
from gkalib.smoothing.fused.launch import check_interpreter, launch


def programs() -> dict[str, list[str]]:
    """The arguments of every Triton function of the fused operations."""
    found = {}
    for module in pkgutil.iter_modules(fused.__path__, f"{fused.__name__}."):
        for name, each in vars(importlib.import_module(module.name)).items():
            if isinstance(each, triton.runtime.jit.JITFunction | InterpretedFunction):
                found[f"{each.fn.__module__}.{name}"] = [*each.arg_names]
    return found


def test_no_program_has_more_than_thirty_arguments():
    """Groups count as one: a tensor with its strides, a mask, the numbers of each head."""
    counts = {name: len(arguments) for name, arguments in programs().items()}
    assert {"smooth_forward_kernel", "gka_backward_kernel", "load_block"} <= {
        name.rpartition(".")[2] for name in counts
    }
    assert {name: count for name, count in counts.items() if count > 30} == {}


@pytest.mark.parametrize("theirs, numpy", [("3.6.0", "2.4.1"), ("3.6.0", "2.10.0")])
def test_an_interpreter_that_breaks_on_this_numpy_says_so(monkeypatch, theirs, numpy):
    monkeypatch.setattr(triton.knobs.runtime, "interpret", True)
    monkeypatch.setattr(np, "__version__", numpy)
    monkeypatch.setattr(triton, "__version__", theirs)
    with pytest.raises(ValueError, match=rf"Triton {theirs} .* before 2.4, not {numpy}: .*\[interpreter\]"):
        check_interpreter()


@pytest.mark.parametrize(
    "interpret, theirs, numpy",
    [(True, "3.7.1", "2.5.5"), (True, "3.6.0", "2.3.5"), (False, "3.6.0", "2.4.1")],
)
def test_other_versions_are_taken(monkeypatch, interpret, theirs, numpy):
    monkeypatch.setattr(triton.knobs.runtime, "interpret", interpret)
    monkeypatch.setattr(np, "__version__", numpy)
    monkeypatch.setattr(triton, "__version__", theirs)
    check_interpreter()


class Recorder:
    """A program that writes down on which device it starts."""

    def __init__(self, current: list[int]):
        self.current, self.started = current, []
        self.fn, self.arg_names = type(self), ["x"]

    def __getitem__(self, grid):
        return self.run

    def run(self, **_):
        self.started.append(self.current[0])


@pytest.fixture
def current(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of the current device, of a driver that keeps nothing else."""
    current = [0]

    def exchange(index: int) -> int:
        before = current[0]
        current[0] = before if index < 0 else index
        return before

    for name in ("_exchange_device", "_maybe_exchange_device"):
        monkeypatch.setattr(torch.cuda, name, exchange)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current[0])
    return current


def test_a_program_starts_where_its_tensors_are(current: list[int]):
    program = Recorder(current)
    with FakeTensorMode():
        for index in (1, 0):
            launch(program, 1, Config(16, 16), scale=1.0, x=torch.empty(4, device=f"cuda:{index}"))
            assert current == [0]
    assert program.started == [1, 0]


def test_an_error_leaves_the_device_as_it_was(current: list[int]):
    class Broken(Recorder):
        def run(self, **_):
            raise RuntimeError("no")

    with FakeTensorMode(), pytest.raises(RuntimeError, match="no"):
        launch(Broken(current), 1, Config(16, 16), x=torch.empty(4, device="cuda:1"))
    assert current == [0]
