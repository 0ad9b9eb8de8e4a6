"""Launch plans: the second call of an operator with tensors of one kind does what its Python would do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gkalib.smoothing.fused.configs import Config, forced
from gkalib.smoothing.fused.launch import derived, empty
from gkalib.smoothing.fused.plans import Planned, Recorder, kind_of
from tests.smoothing.fused.planning import CASES, GROWN

NAMES = [f"{case}: {operator}" for case, calls in CASES.items() for operator in calls] + GROWN


@pytest.fixture(scope="module")
def outcomes() -> list[str]:
    """What each case came to, from one process that compiles them all."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    run = [sys.executable, "-m", "tests.smoothing.fused.planning"]
    root = Path(__file__).parents[3]
    done = subprocess.run(run, capture_output=True, text=True, env=environment, cwd=root, timeout=280)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_plan_starts_the_same_programs(name: str, outcomes: list[str]):
    """With the same numbers, on the tensors that are given now; the operator's Python is taken away."""
    assert next(line for line in outcomes if line.startswith(name + " ")) == f"{name} ok"


def test_the_kind_of_tensors():
    """Shapes, strides, types, alignment, numbers, and which tensors are one."""
    x = torch.randn(4, 8)
    kinds = [
        kind_of(arguments)[1]
        for arguments in (
            (x, x, 1), (x, x.clone(), 1), (x, x, 2), (x.mT, x.mT, 1), (x[:3], x[:3], 1),
            (x.half(), x.half(), 1), (torch.randn(33)[1:].view(4, 8), x, 1), (x, None, 1),
        )
    ]  # fmt: skip
    assert len(set(kinds)) == len(kinds)
    assert kind_of((x.clone(), x.clone(), 1))[1] == kinds[1]


def test_the_kind_of_tensors_that_grow():
    """A plan serves up to the next whole GRAIN, if strides stay, and says so of the tensors that may grow."""
    store = torch.randn(1, 2, 300, 8)
    caches = {length: store[:, :, :length] for length in (1, 128, 129, 256)}
    kinds = {length: kind_of((cache, cache), (0,))[1][0] for length, cache in caches.items()}
    assert kinds[1] == kinds[128] != kinds[129] == kinds[256]
    assert kind_of((caches[1], 1))[1] != kind_of((caches[128], 1))[1]
    assert kind_of((caches[1].contiguous(),), (0,))[1] != kind_of((caches[128],), (0,))[1]


@pytest.mark.parametrize(
    "python",
    [
        lambda x: x * 2,
        lambda x: x,
        lambda x: derived(torch.neg, x[1:]),
        lambda x: (memory := empty(x, 2, 3).zero_(), memory.mT),
    ],
    ids=["made elsewhere", "given", "of what was made elsewhere", "one memory twice"],
)
def test_what_cannot_be_repeated_has_no_plan(python):
    x = torch.randn(4, 8)
    operator = Planned(python)
    expected = python(x)
    for _ in range(3):
        torch.testing.assert_close(operator(x), expected)
    (plan,) = operator.plans.values()
    assert plan is None


def test_what_is_derived_and_memory_are_repeated():
    """Views of memory are returned as they were; numbers are those of the tensors given now."""
    runs = []

    def python(x):
        runs.append(x)
        return empty(x, 2, 3).transpose(0, 1), derived(lambda x: (x[1:] * 2).sum(0), x)

    operator = Planned(python)
    for x in (torch.randn(4, 8), torch.randn(4, 8), torch.randn(4, 8)):
        memory, doubled = operator(x)
        assert memory.shape == (3, 2) and memory.stride() == (1, 3)
        assert torch.equal(doubled, (x[1:] * 2).sum(0))
    assert len(runs) == 1
    (plan,) = operator.plans.values()
    assert plan is not None and len(plan.steps) == 2, "the view is made with the memory"
    with forced(Config(16, 16)):
        operator(torch.randn(4, 8))
    assert len(runs) == 2, "with other block sizes nothing is kept"


def test_memory_that_is_read_and_returned_in_two_shapes_has_no_plan():
    def python(x):
        memory = empty(x, 2, 3)
        return memory.transpose(0, 1), derived(lambda memory: memory.isnan().sum(0), memory)

    operator = Planned(python)
    operator(torch.randn(4, 8))
    assert list(operator.plans.values()) == [None]


def test_plans_are_few(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gkalib.smoothing.fused.plans.MOST", 3)
    operator = Planned(lambda x: derived(lambda x: x + 1, x))
    for length in range(1, 9):
        assert torch.equal(operator(torch.ones(length)), torch.full((length,), 2.0))
        assert len(operator.plans) <= 3


def test_the_interpreter_compiles_nothing_to_plan_with(device: torch.device):
    from gkalib.smoothing.fused.forward import squared_norms

    x = torch.randn(1, 1, 4, 16, device=device)
    recorder = Recorder([x])
    operator = Planned(squared_norms)
    operator(x)
    (plan,) = operator.plans.values()
    assert (plan is None) == (device.type == "cpu")
    assert recorder.possible
