"""Whether fused operations are right on a device: fresh inputs and poisoned memory, against float64."""

import copy
import math
import os
import platform
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from typing import Any

import torch
from torch import Tensor

from gkalib import results
from gkalib.bench import gpu
from gkalib.bench.fused import TOLERANCE, reason_of
from gkalib.bench.job import FUSED, Job
from gkalib.bench.operations import MASKS, OPERATIONS, Case, Operation, Sizes
from gkalib.masks import Mask

Row = dict[str, Any]

EXPERIMENT = "correctness"
DTYPES = {"cuda": ("bfloat16", "float16", "float32"), "cpu": ("float16", "float32", "float64")}
FACTORS = {"out": 1.0, "query": 2.0, "key": 2.0, "value": 2.0}
PARAMETER = 10.0  # times the tolerance: a parameter's gradient is a sum over all pairs, whose terms cancel
EVERY = 10.0  # seconds between two savings of what there is
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
    """For the queue: each operation, on a GPU in each type; warp-specialized programs first."""
    return [
        Job(
            name="-".join(["correctness", operation, *types]),
            priority=9 if OPERATIONS[operation].halves else 10,
            seconds=75.0,  # mostly of compilation
            call=f"{__name__}:run",
            arguments={"operation": operation, "types": types},
            depends=(*FUSED, "bench/correctness.py", "bench/operations.py"),
            devices=(device,),
            alone=False,
        )
        for operation in OPERATIONS
        for device in DTYPES
        for types in ([[one] for one in _types(operation, device)] if device == "cuda" else [[]])
    ]


def _types(operation: str, device: str) -> tuple[str, ...]:
    """The types in which an operation is checked."""
    known = DTYPES[device]
    return known[:-1] if OPERATIONS[operation].halves and device == "cuda" else known


def run(operation: str, types: Sequence[str] = (), *, device: str) -> list[Row]:
    """Compare an operation with the reference in float64 and keep a row for each quantity of each case.

    The record is ``correctness/<operation>-<types>``. Its metrics are the largest errors by type, the same
    over the errors that the reference makes in that type, and the numbers of cases, of rows and of those that
    are wrong; what raised is a row with the reason. It is kept as it grows. On a CPU the cases are small, and
    Triton's interpreter runs them.

    Args:
        operation: a name in OPERATIONS.
        types: which ones; all that the device has where none is named.
        device: ``"cuda"`` or ``"cpu"``.
    """
    seed, start = secrets.randbelow(2**31), time.perf_counter()
    generator = torch.Generator(device).manual_seed(seed)
    rows: list[Row] = []
    arm, kept = "-".join([operation, *types]), start
    for case in cases(operation, device, types):
        try:
            with _poisoned():
                found = compare(operation, case, generator)
        except Exception as error:  # what keeps a case from running is what its row says
            found = [_row(case, "out", reason=reason_of(error))]
        rows += found
        if not gpu.alive(device):
            rows.append(_row(case, "out", reason="the device is lost, and later cases were not run"))
            break
        if time.perf_counter() - kept > EVERY:
            kept = time.perf_counter()
            _keep(arm, rows, device=device, seed=seed, seconds=kept - start)
    _keep(arm, rows, device=device, seed=seed, seconds=time.perf_counter() - start)
    for row in rows:
        if not row["right"]:
            print(", ".join(f"{name} {value}" for name, value in row.items() if value != ""), flush=True)
    wrong = sum(not row["right"] for row in rows)
    print(f"{arm}: {len(rows) - wrong} of {len(rows)} right", flush=True)
    return rows


def cases(operation: str, device: str, types: Sequence[str] = ()) -> Iterator[Case]:
    """Every mask in every type, and two with large scores; sizes take turns, so that all of them occur.

    On a GPU each comes twice, the second time with about a third of the tokens and the same programs.
    """
    kind = OPERATIONS[operation]
    sizes = kind.sizes if device == "cuda" and kind.sizes else SIZES[device]
    turn = 0
    masks = [(mask, spread) for spread in kind.spreads for mask in kind.masks[: None if spread == 1 else 2]]
    for mask, spread in masks:
        for dtype in types or _types(operation, device):
            for _ in range(1 if len(kind.masks) > 1 else len(sizes)):
                case = Case(*sizes[turn % len(sizes)], mask, dtype, spread)
                turn += 1
                if kind.one_tensor:
                    case = replace(case, keys=case.queries, value_width=case.width)
                if not kind.grouped:
                    case = replace(case, groups=case.heads)
                for one in (case, _fewer(case)) if device == "cuda" else (case,):
                    yield one if kind.gradients else replace(one, queries=1)
        turn += 1


def _fewer(case: Case) -> Case:
    return replace(case, queries=case.queries // 3 + 2, keys=case.keys // 3 + 2)


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
    plain = _values(copy.deepcopy(module), given, grad, mask, "reference")
    with module.programs():
        found = _values(module, given, grad, mask, "fused")
    # Where weights are nearly 0 and 1 a parameter's gradient is what is left of terms that cancel.
    judged = case.spread == 1 or dtype not in (torch.float16, torch.bfloat16)
    wanted = [name for name in exact if judged or name in FACTORS]
    return [_row(case, name, found[name], exact[name], plain[name]) for name in wanted]


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
    case: Case,
    what: str,
    found: Tensor | None = None,
    exact: Tensor | None = None,
    plain: Tensor | None = None,
    *,
    reason: str = "",
) -> Row:
    """‖found − exact‖ / ‖exact‖ beside what is allowed, and the same of the reference in the same type."""
    limit = TOLERANCE[case.dtype] * FACTORS.get(what, PARAMETER)
    row: Row = {**asdict(case), "what": what, "error": "", "plain": "", "limit": limit, "right": 0}
    row["reason"] = reason
    if found is not None and exact is not None:
        size = exact.norm().item() or 1.0  # an output of zeros has no size
        error = (found.double() - exact).norm().item() / size
        row |= {"error": error, "right": int(error <= limit)}  # no comparison with NaN is true
        if plain is not None:
            row["plain"] = (plain.double() - exact).norm().item() / size
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


def _keep(arm: str, rows: list[Row], *, device: str, seed: int, seconds: float) -> None:
    metrics: dict[str, float] = {}

    def largest(name: str, value: float) -> None:
        if math.isfinite(value):
            metrics[name] = max(value, metrics.get(name, 0.0))

    for row in rows:
        if isinstance(row["error"], float):
            kind = "error" if row["what"] == "out" else "gradient" if row["what"] in FACTORS else "parameter"
            largest(f"{kind}_{row['dtype']}", row["error"])
            if isinstance(row["plain"], float) and row["plain"] > 0 and kind != "parameter":
                largest(f"relative_{kind}_{row['dtype']}", row["error"] / row["plain"])
    counted = {tuple(row[one.name] for one in fields(Case)) for row in rows}
    metrics |= {"cases": len(counted), "rows": len(rows), "wrong": sum(not row["right"] for row in rows)}
    on_gpu = device == "cuda"
    record = results.Record(
        experiment=EXPERIMENT,
        arm=arm,
        scale="full" if on_gpu else "smoke",
        recipe={"operation": arm, "inputs": seed},
        seed=0,
        device=torch.cuda.get_device_name() if on_gpu else f"{os.cpu_count()} cores {platform.machine()}",
        wall_seconds=seconds,
        metrics=metrics,
        **results.provenance("torch", "triton", "numpy"),
    )
    results.save(record, rows=rows)
