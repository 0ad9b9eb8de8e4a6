"""The same problem put differently: repeated, at other addresses, on another stream, as a graph, far out.

What an operation gives must not depend on any of it; `correctness` holds the numbers to their definition.
"""

import re
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gkalib.bench import timing
from gkalib.bench.cases import Row, reason_of
from gkalib.bench.fused import TOLERANCE, relative_error
from gkalib.gpu import operations
from gkalib.gpu.correctness import EXPERIMENT, values
from gkalib.gpu.limits import said
from gkalib.gpu.operations import MASKS, Check, Operation
from gkalib.masks import Mask

OPERATIONS = ("gka", "gka-head", "gka-described", "rbf", "gpa", "karat", "decode")
"""Those whose sums come in one order."""
TIMES = {"cuda": 20, "cpu": 2}
"""How often each program runs, to give the same bits every time."""
COUNTED = {"cuda": 2**31, "cpu": 2**10}
"""More numbers than this are in a tensor of `large`; on a GPU, than 32 bits with a sign count."""
SIZES = {
    "cuda": {
        "gka-head": (4, 3, 3, 197, 197, 64, 64),
        "gka-described": (2, 4, 4, 600, 600, 128, 128),
        "karat": (4, 3, 3, 197, 197, 64, 64),
        "decode": (3, 4, 4, 1, 600, 128, 128),
        "": (2, 4, 4, 600, 600, 64, 64),
    },
    "cpu": {"decode": (2, 2, 2, 1, 19, 16, 16), "": (2, 2, 2, 19, 19, 16, 16)},
}
"""As in a Check; of what is not named, the last."""
LARGE = ("gka", "rbf", "gpa", "karat", "decode")
"""The operations of `large`."""
FAR = {
    "cuda": {"decode": (8, 8, 1, 4096, 64), "": (8, 8, 64, 64, 64)},
    "cpu": {"decode": (2, 2, 1, 13, 16), "": (2, 2, 13, 13, 16)},
}
"""Heads, groups, queries, keys and width of `large`."""
ON_CPU = "float32"
"""The type there: the interpreter knows no bfloat16."""
LENGTH = 150
"""Tokens of what `races` looks at."""
HAZARDS = re.compile(r"RACECHECK SUMMARY: (\d+) hazards? displayed \((\d+) errors?, (\d+) warnings?\)")


@dataclass(frozen=True)
class Posed:
    """A problem with its inputs: operation, query, key and value by name, the output's gradient, mask."""

    module: Operation
    tensors: dict[str, Tensor]
    grad: Tensor
    mask: Mask | None

    def __call__(self, tensors: dict[str, Tensor] | None = None) -> dict[str, Tensor]:
        """The output and the gradients, of these tensors or its own."""
        # What a user gets, by the table's choice of programs, unless it is another program that is meant.
        chosen = self.module.programs() if self.module.halves else nullcontext()
        with chosen:
            return values(self.module, tensors or self.tensors, self.grad, self.mask, "fused")


def posed(operation: str, check: Check, generator: torch.Generator) -> Posed:
    """A problem of random numbers of a check's sizes, as projections leave them: b, n, h, width in memory."""
    kind, device = operations.OPERATIONS[operation], generator.device
    dtype = getattr(torch, check.dtype)

    def tensor(heads: int, length: int, width: int) -> Tensor:
        shape = (check.batch, length, heads, width)
        return torch.randn(shape, generator=generator, device=device, dtype=dtype).transpose(1, 2)

    tensors = {"query": tensor(check.heads, check.queries, check.width)}
    if not kind.one_tensor:
        tensors["key"] = tensor(check.groups, check.keys, check.width)
        tensors["value"] = tensor(check.groups, check.keys, check.value_width)
    grad = tensor(check.heads, check.queries, check.value_width)
    module = kind(check).to(device)
    return Posed(module.double() if dtype == torch.float64 else module, tensors, grad, _mask(check, device))


def _mask(check: Check, device: torch.device) -> Mask | None:
    return MASKS[check.mask](check, device)


def run(operation: str, dtype: str, *, device: str) -> list[Row]:
    """Put one problem in every way that must not matter, and keep a row for each way and quantity.

    The record is an arm ``invariance-<operation>-<type>`` of ``correctness``.
    """
    start, generator = time.perf_counter(), torch.Generator(device).manual_seed(0)
    dtype = dtype if device == "cuda" else ON_CPU
    sizes = SIZES[device].get(operation, SIZES[device][""])
    masked = "causal" in operations.OPERATIONS[operation].masks and operation != "gka-head"
    check = Check(*sizes, mask="causal" if masked else "all", dtype=dtype)
    rows: list[Row] = []
    with timing.stream(device):
        problem = posed(operation, check, generator)
        for way in (repeated, elsewhere, *((streamed, replayed) if device == "cuda" else ())):
            try:
                rows += way(problem, check)
            except Exception as error:  # what keeps a way from being tried is what its row says
                rows.append(_row(way.__name__, "out", None, None, 0.0) | {"reason": reason_of(error)})
            if not timing.alive(device):
                rows.append(_row("the device is lost", "out", None, None, 0.0))
                break
    _keep(f"invariance-{operation}-{dtype}", rows, device, time.perf_counter() - start)
    return rows


def repeated(problem: Posed, check: Check) -> Iterator[Row]:
    """The same call again and again: the same bits."""
    first = problem()
    for _ in range(1, TIMES[problem.grad.device.type]):
        again = problem()
        different = [name for name in first if not torch.equal(first[name], again[name])]
        if different:
            yield from (_row("repeated", name, again[name], first[name], 0.0) for name in different)
            return
    yield from (_row("repeated", name, first[name], first[name], 0.0) for name in first)


def elsewhere(problem: Posed, check: Check) -> Iterator[Row]:
    """Views that start one number further on, and whose rows lie one number further apart.

    Neither is aligned to 16 bytes, so that loads are narrower; products may then be formed by other units.
    """
    allowed, expected = TOLERANCE[check.dtype], problem()
    for name, move in (("offset", _offset), ("padded rows", _spread)):
        actual = problem({key: move(tensor) for key, tensor in problem.tensors.items()})
        yield from (_row(name, key, actual[key], expected[key], allowed) for key in expected)


def _offset(tensor: Tensor) -> Tensor:
    """The same numbers and strides, one number behind where memory begins."""
    memory = tensor.new_empty(tensor.numel() + 1)[1:].view(tensor.transpose(1, 2).shape)
    return memory.copy_(tensor.transpose(1, 2)).transpose(1, 2)


def _spread(tensor: Tensor) -> Tensor:
    """The same numbers, each row with one more behind it."""
    batch, heads, length, width = tensor.shape
    memory = tensor.new_full((batch, length, heads, width + 1), float("nan"))[..., :width]
    return memory.copy_(tensor.transpose(1, 2)).transpose(1, 2)


def streamed(problem: Posed, check: Check) -> Iterator[Row]:
    """On a stream of its own, whose inputs are written there just before."""
    expected = problem()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        busy = torch.ones(4096, 4096, device="cuda")
        for _ in range(20):
            busy = busy @ busy / 4096
        inputs = {name: torch.empty_like(tensor).copy_(tensor) for name, tensor in problem.tensors.items()}
        actual = problem(inputs)
    torch.cuda.current_stream().wait_stream(side)
    yield from (_row("another stream", name, actual[name], expected[name], 0.0) for name in expected)


def replayed(problem: Posed, check: Check) -> Iterator[Row]:
    """Captured as a graph with some inputs, replayed with others."""
    fixed = {name: torch.empty_like(tensor).normal_() for name, tensor in problem.tensors.items()}
    for _ in range(3):
        problem(fixed)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        actual = problem(fixed)
    for name, tensor in problem.tensors.items():
        fixed[name].copy_(tensor)
    graph.replay()
    expected = problem()
    yield from (_row("graph", name, actual[name], expected[name], 0.0) for name in expected)


def large(*, device: str, dtype: str = "bfloat16") -> list[Row]:
    """The last sequences of tensors of more than 2³¹ numbers, beside the same two alone.

    The record is ``correctness/large-<type>``. Parameters collect their gradient from all sequences, and of
    that it is only asked that it is finite.
    """
    start, generator, rows = time.perf_counter(), torch.Generator(device).manual_seed(0), []
    dtype = dtype if device == "cuda" else ON_CPU
    for operation in LARGE:
        heads, groups, queries, keys, width = FAR[device].get(operation, FAR[device][""])
        batch = max(3, COUNTED[device] // (groups * keys * width) + 1)
        check = Check(batch, heads, groups, queries, keys, width, width, dtype=dtype)
        try:
            rows += _last(operation, check, generator)
        except Exception as error:
            rows.append(_row(f"large {operation}", "out", None, None, 0.0) | {"reason": reason_of(error)})
        timing.free()
    _keep(f"large-{dtype}", rows, device, time.perf_counter() - start)
    return rows


def _last(operation: str, check: Check, generator: torch.Generator) -> Iterator[Row]:
    """The rows of `large` for one operation."""
    problem, allowed = posed(operation, check, generator), TOLERANCE[check.dtype]
    whole = problem()
    tensors = {name: tensor[-2:].contiguous() for name, tensor in problem.tensors.items()}
    alone = replace(problem, tensors=tensors, grad=problem.grad[-2:])()
    for name, actual in whole.items():
        shared = actual.shape[0] != check.batch
        compared = (actual, torch.zeros_like(actual)) if shared else (actual[-2:], alone[name])
        yield _row(f"large {operation}", name, *compared, float("inf") if shared else allowed)


def races(*, device: str) -> dict[str, float]:
    """Hazards in shared memory, as compute-sanitizer's racecheck sees them, where that is installed
    and ends in time.

    The record is ``correctness/races``. What runs is small: GPA with its table's gradient, and the backward
    pass of a whole head.
    """
    start, text = time.perf_counter(), "races were not looked for\n"
    if device == "cuda":
        call = "from gkalib.gpu.invariance import small; small()"
        options = ["--tool", "racecheck", "--print-limit", "5"]
        text = said("compute-sanitizer", *options, sys.executable, "-c", call)
    print(text[-4000:])
    metrics = hazards(text)
    timing.keep(
        EXPERIMENT,
        "races",
        metrics,
        device=device,
        scale="full" if device == "cuda" else "smoke",
        recipe={"programs": ["gpa", "gka-head"]},
        wall_seconds=time.perf_counter() - start,
    )
    return metrics


def hazards(text: str) -> dict[str, float]:
    """How many hazards racecheck counted, and how many of them are errors; ``ran`` is 0 if it did not say."""
    found = HAZARDS.search(text)
    if found is None:
        return {"ran": 0.0}
    return {"ran": 1.0, "hazards": float(found[1]), "errors": float(found[2])}


def small(device: str = "cuda") -> None:
    """Run once what `races` looks at."""
    generator = torch.Generator(device).manual_seed(0)
    for operation, mask in (("gpa", "causal"), ("gka-head", "all")):
        check = Check(
            1, 2, 2, LENGTH, LENGTH, 64, 64, mask=mask, dtype="bfloat16" if device == "cuda" else "float32"
        )
        posed(operation, check, generator)()


def _row(way: str, what: str, actual: Tensor | None, expected: Tensor | None, allowed: float) -> Row:
    """One quantity in one way: whether the bits are the same, or how far apart they are."""
    row: Row = {"way": way, "what": what, "same": 0, "error": "", "limit": allowed, "right": 0, "reason": ""}
    if actual is None or expected is None:
        return row
    row["same"] = int(torch.equal(actual, expected))
    row["error"] = error = 0.0 if row["same"] else relative_error(actual, expected.double())
    finite = bool(actual.isfinite().all())
    return row | {"right": int(finite and error <= allowed)}


def _keep(arm: str, rows: list[Row], device: str, seconds: float) -> None:
    for row in rows:
        if not row["right"]:
            print(", ".join(f"{name} {value}" for name, value in row.items() if value != ""), flush=True)
    wrong = sum(not row["right"] for row in rows)
    print(f"{arm}: {len(rows) - wrong} of {len(rows)} right", flush=True)
    timing.keep(
        EXPERIMENT,
        arm,
        {"cases": len({row["way"] for row in rows}), "rows": len(rows), "wrong": wrong},
        rows,
        device=device,
        scale="full" if device == "cuda" else "smoke",
        recipe={"arm": arm, "times": TIMES[device]},
        wall_seconds=seconds,
    )
