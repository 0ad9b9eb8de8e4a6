"""Whether fused operations are right on a device: fresh inputs and poisoned memory, against float64."""

import copy
import math
import os
import platform
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor

from gkalib import results
from gkalib.bench.fused import TOLERANCE, reason_of
from gkalib.bench.job import FUSED, Job
from gkalib.bench.operations import MASKS, OPERATIONS, Case, Operation
from gkalib.masks import Mask

Row = dict[str, Any]

EXPERIMENT = "correctness"
DTYPES = {"cuda": ("bfloat16", "float16", "float32"), "cpu": ("float16", "float32", "float64")}
FACTORS = {"out": 1.0, "query": 2.0, "key": 2.0, "value": 2.0}
PARAMETER = 10.0  # times the tolerance: a parameter's gradient is a sum over all pairs, whose terms cancel
Sizes = tuple[int, int, int, int, int, int, int]
SIZES: dict[str, tuple[Sizes, ...]] = {
    "cuda": (
        (2, 3, 3, 197, 197, 64, 64),
        (1, 4, 2, 300, 300, 128, 128),
        (2, 2, 2, 77, 210, 80, 48),
        (1, 2, 2, 131, 131, 33, 33),
        (1, 2, 1, 1030, 1030, 256, 256),
        (2, 2, 2, 65, 513, 16, 16),
    ),
    "cpu": ((1, 2, 2, 19, 19, 16, 16), (1, 2, 1, 9, 21, 9, 16)),
}


def jobs() -> list[Job]:
    """For the queue: each operation."""
    return [
        Job(
            name=f"correctness-{name}",
            priority=10,
            seconds=90.0,  # mostly of compilation
            call=f"{__name__}:run",
            arguments={"operation": name},
            depends=(*FUSED, "bench/correctness.py", "bench/operations.py"),
            devices=("cuda", "cpu"),
        )
        for name in OPERATIONS
    ]


def run(operation: str, *, device: str) -> list[Row]:
    """Compare an operation with the reference in float64 and keep a row for each quantity of each case.

    The record is ``correctness/<operation>``: its metrics are the largest errors by type and the number of
    rows that are wrong; what raised is a row with the reason. On a CPU the cases are small, and Triton's
    interpreter runs them.

    Args:
        operation: a name in OPERATIONS.
        device: ``"cuda"`` or ``"cpu"``.
    """
    seed, start = secrets.randbelow(2**31), time.perf_counter()
    generator = torch.Generator(device).manual_seed(seed)
    rows: list[Row] = []
    for case in cases(operation, device):
        try:
            with _poisoned():
                found = compare(operation, case, generator)
        except Exception as error:  # what keeps a case from running is what its row says
            found = [_row(case, "out", reason=reason_of(error))]
        rows += found
        if not _alive(device):
            rows.append(_row(case, "out", reason="the device is lost, and later cases were not run"))
            break
    _keep(operation, rows, device=device, seed=seed, seconds=time.perf_counter() - start)
    for row in rows:
        if not row["right"]:
            print(", ".join(f"{name} {value}" for name, value in row.items() if value != ""), flush=True)
    wrong = sum(not row["right"] for row in rows)
    print(f"{operation}: {len(rows) - wrong} of {len(rows)} right", flush=True)
    return rows


def cases(operation: str, device: str) -> Iterator[Case]:
    """Every mask in every type, and two with large scores; sizes take turns, so that all of them occur."""
    kind = OPERATIONS[operation]
    turn = 0
    masks = [(mask, spread) for spread in kind.spreads for mask in kind.masks[: None if spread == 1 else 2]]
    for mask, spread in masks:
        for dtype in DTYPES[device]:
            for _ in range(1 if len(kind.masks) > 1 else len(SIZES[device])):
                case = Case(*SIZES[device][turn % len(SIZES[device])], mask, dtype, spread)
                turn += 1
                if kind.one_tensor:
                    case = replace(case, keys=case.queries, value_width=case.width)
                if not kind.grouped:
                    case = replace(case, groups=case.heads)
                yield case if kind.gradients else replace(case, queries=1)
        turn += 1


def compare(operation: str, case: Case, generator: torch.Generator) -> list[Row]:
    """A row for the output and one for each gradient."""
    kind, device = OPERATIONS[operation], generator.device
    dtype = getattr(torch, case.dtype)

    def tensor(heads: int, length: int, width: int) -> Tensor:
        # as a projection leaves it: b, n, h, width in memory
        shape = (case.batch, length, heads, width)
        return torch.randn(shape, generator=generator, device=device).to(dtype).transpose(1, 2)

    query = tensor(case.heads, case.queries, case.width) * case.spread
    key = tensor(case.groups, case.keys, case.width) * case.spread
    value = tensor(case.groups, case.keys, case.value_width)
    grad = tensor(case.heads, case.queries, case.value_width)
    module = kind(case).to(device)
    if dtype == torch.float64:
        module = module.double()
    mask = MASKS[case.mask](case, device)
    given = {"query": query} if kind.one_tensor else {"query": query, "key": key, "value": value}
    wide = {name: one.double() for name, one in given.items()}
    exact = _values(copy.deepcopy(module).double(), wide, grad.double(), mask, "reference")
    found = _values(module, given, grad, mask, "fused")
    # Where weights are nearly 0 and 1 a parameter's gradient is what is left of terms that cancel.
    judged = case.spread == 1 or dtype not in (torch.float16, torch.bfloat16)
    return [_row(case, name, found[name], exact[name]) for name in exact if judged or name in FACTORS]


def _values(
    module: Operation, given: dict[str, Tensor], grad: Tensor, mask: Mask | None, method: str
) -> dict[str, Tensor]:
    """The output, and the gradients of the tensors and of the parameters."""
    query = given["query"]
    if not module.gradients:
        with torch.no_grad():
            return {"out": module(query, given["key"], given["value"], mask, method)}
    leaves = {name: one.detach().requires_grad_() for name, one in given.items()}
    query = leaves["query"]
    out = module(query, leaves.get("key", query), leaves.get("value", query), mask, method)
    leaves |= {name: one for name, one in module.named_parameters() if one.requires_grad}
    found = torch.autograd.grad(out, list(leaves.values()), grad, allow_unused=True)
    named = zip(leaves, found, strict=True)
    return {"out": out.detach(), **{name: one for name, one in named if one is not None}}


def _row(
    case: Case, what: str, found: Tensor | None = None, exact: Tensor | None = None, *, reason: str = ""
) -> Row:
    """‖found − exact‖ / ‖exact‖ beside what is allowed."""
    limit = TOLERANCE[case.dtype] * FACTORS.get(what, PARAMETER)
    row: Row = {**asdict(case), "what": what, "error": "", "limit": limit, "right": 0, "reason": reason}
    if found is not None and exact is not None:
        size = exact.norm().item()
        error = (found.double() - exact).norm().item() / (size or 1.0)  # an output of zeros has no size
        row |= {"error": error, "right": int(error <= limit)}  # no comparison with NaN is true
    return row


@contextmanager
def _poisoned() -> Iterator[None]:
    """Within it memory that nobody wrote reads as NaN, as PyTorch does where it is to be deterministic."""
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def _alive(device: str) -> bool:
    """Whether the device still answers: after some errors it does not."""
    if device == "cuda":
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            return False
    return True


def _keep(operation: str, rows: list[Row], *, device: str, seed: int, seconds: float) -> None:
    metrics: dict[str, float] = {}
    for row in rows:
        if isinstance(row["error"], float) and math.isfinite(row["error"]):
            kind = "error" if row["what"] == "out" else "gradient" if row["what"] in FACTORS else "parameter"
            name = f"{kind}_{row['dtype']}"
            metrics[name] = max(row["error"], metrics.get(name, 0.0))
    metrics |= {"rows": len(rows), "wrong": sum(not row["right"] for row in rows)}
    on_gpu = device == "cuda"
    record = results.Record(
        experiment=EXPERIMENT,
        arm=operation,
        scale="full" if on_gpu else "smoke",
        recipe={"operation": operation, "inputs": seed},
        seed=0,
        device=torch.cuda.get_device_name() if on_gpu else f"{os.cpu_count()} cores {platform.machine()}",
        wall_seconds=seconds,
        metrics=metrics,
        **results.provenance("torch", "triton", "numpy"),
    )
    results.save(record, rows=rows)
