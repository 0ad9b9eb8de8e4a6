"""Whether fused operations are right on a device: fresh inputs and poisoned memory, against float64."""

import copy
import itertools
import math
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from typing import Any

import torch
from torch import Tensor

from gkalib.bench import timing
from gkalib.bench.cases import Row, reason_of
from gkalib.bench.fused import TOLERANCE, relative_error
from gkalib.gpu.operations import MASKS, OPERATIONS, Check, Operation, Sizes
from gkalib.masks import Mask
from gkalib.smoothing.fused.proved import programs

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


def types_of(operation: str, device: str) -> tuple[str, ...]:
    """The types in which an operation is checked."""
    types = DTYPES[device]
    return types[:-1] if OPERATIONS[operation].halves and device == "cuda" else types


def run(operation: str, types: Sequence[str] = (), *, most: int | None = None, device: str) -> list[Row]:
    """Compare an operation with the reference in float64 and keep a row for each quantity of each check.

    The record is ``correctness/<operation>-<types>``. Its metrics are the largest errors by type, the same
    over the errors that the reference makes in that type, and the numbers of cases, of rows and of those that
    are wrong; what raised is a row with the reason. It is kept as it grows. On a CPU the cases are small, and
    Triton's interpreter runs them.

    Args:
        operation: a name in OPERATIONS.
        types: which ones; all that the device has where none is named.
        most: so many checks at most; the record's arm then begins with ``first-``.
        device: ``"cuda"`` or ``"cpu"``.
    """
    seed, start = secrets.randbelow(2**31), time.perf_counter()
    generator = torch.Generator(device).manual_seed(seed)
    rows: list[Row] = []
    arm, saved_at = "-".join([*(["first"] if most else []), operation, *types]), start
    recipe = {"operation": operation, "types": [*types], "inputs": seed, "programs": programs()}
    for check in itertools.islice(checks(operation, device, types), most):
        try:
            with _poisoned():
                rows += compare(operation, check, generator)
        except Exception as error:  # what keeps a check from being made is what its row says
            rows.append(_failed_row(check, reason_of(error)))
        if not timing.alive(device):
            rows.append(_failed_row(check, "the device is lost, and later cases were not run"))
            break
        if time.perf_counter() - saved_at > EVERY:
            saved_at = time.perf_counter()
            _keep(arm, rows, recipe, device=device, seconds=saved_at - start)
    _keep(arm, rows, recipe, device=device, seconds=time.perf_counter() - start)
    for row in rows:
        if not row["right"]:
            print(", ".join(f"{name} {value}" for name, value in row.items() if value != ""), flush=True)
    wrong = sum(not row["right"] for row in rows)
    print(f"{arm}: {len(rows) - wrong} of {len(rows)} right", flush=True)
    return rows


def checks(operation: str, device: str, types: Sequence[str] = ()) -> Iterator[Check]:
    """Every mask and every size in every type, and two masks with large scores; both take turns.

    On a GPU each comes twice, the second time with about a third of the tokens and the same programs.
    """
    kind = OPERATIONS[operation]
    sizes = kind.sizes if device == "cuda" and kind.sizes else SIZES[device]
    for spread in kind.spreads:
        masks = kind.masks if spread == 1 else kind.masks[:2]
        for turn, dtype in itertools.product(
            range(max(len(masks), len(sizes))), types or types_of(operation, device)
        ):
            mask = masks[turn % len(masks)]
            check = Check(*sizes[turn % len(sizes)], mask, dtype, spread)
            if kind.one_tensor:
                check = replace(check, keys=check.queries, value_width=check.width)
            if not kind.grouped:
                check = replace(check, groups=check.heads)
            for variant in (check, _with_fewer_tokens(check)) if device == "cuda" else (check,):
                yield variant if kind.gradients else replace(variant, queries=1)


def _with_fewer_tokens(check: Check) -> Check:
    return replace(check, queries=check.queries // 3 + 2, keys=check.keys // 3 + 2)


def compare(operation: str, check: Check, generator: torch.Generator) -> list[Row]:
    """A row for the output and one for each gradient."""
    kind, device = OPERATIONS[operation], generator.device
    dtype = getattr(torch, check.dtype)

    def tensor(heads: int, length: int, width: int) -> Tensor:
        # as a projection leaves it: b, n, h, width in memory
        shape = (check.batch, length, heads, width)
        return torch.randn(shape, generator=generator, device=device).to(dtype).transpose(1, 2)

    query = tensor(check.heads, check.queries, check.width) * check.spread
    key = tensor(check.groups, check.keys, check.width) * check.spread
    value = tensor(check.groups, check.keys, check.value_width)
    grad = tensor(check.heads, check.queries, check.value_width)
    module = kind(check).to(device)
    if dtype == torch.float64:
        module = module.double()
    mask = MASKS[check.mask](check, device)
    tensors = {"query": query} if kind.one_tensor else {"query": query, "key": key, "value": value}
    exact_tensors = {name: tensor.double() for name, tensor in tensors.items()}
    exact = values(copy.deepcopy(module).double(), exact_tensors, grad.double(), mask, "reference")
    plain = values(copy.deepcopy(module), tensors, grad, mask, "reference")
    with module.programs():
        actual = values(module, tensors, grad, mask, "fused")
    # Where weights are nearly 0 and 1 a parameter's gradient is what is left of terms that cancel.
    all_compared = check.spread == 1 or dtype not in (torch.float16, torch.bfloat16)
    names = [name for name in exact if all_compared or name in FACTORS]
    return [_row(check, name, actual[name], exact[name], plain[name]) for name in names]


def values(
    module: Operation, tensors: dict[str, Tensor], grad: Tensor, mask: Mask | None, method: str
) -> dict[str, Tensor]:
    """The output, and the gradients of the tensors and of the parameters."""
    query = tensors["query"]
    if not module.gradients:
        with torch.no_grad():
            return {"out": module(query, tensors["key"], tensors["value"], mask, method)}
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in tensors.items()}
    query = leaves["query"]
    out = module(query, leaves.get("key", query), leaves.get("value", query), mask, method)
    leaves |= {name: leaf for name, leaf in module.named_parameters() if leaf.requires_grad}
    gradients = torch.autograd.grad(out, list(leaves.values()), grad, allow_unused=True)
    pairs = zip(leaves, gradients, strict=True)
    return {"out": out.detach(), **{name: gradient for name, gradient in pairs if gradient is not None}}


def _row(check: Check, what: str, actual: Tensor, exact: Tensor, plain: Tensor) -> Row:
    """The relative error beside what is allowed, and the same of the reference in the same type."""
    error, limit = relative_error(actual, exact), _limit(check, what)
    row = {**asdict(check), "what": what, "error": error, "plain": relative_error(plain, exact)}
    # no comparison with NaN is true
    return row | {"limit": limit, "right": int(error <= limit), "reason": ""}


def _failed_row(check: Check, reason: str) -> Row:
    """The row of a check that could not be made."""
    row = {**asdict(check), "what": "out", "error": "", "plain": ""}
    return row | {"limit": _limit(check, "out"), "right": 0, "reason": reason}


def _limit(check: Check, what: str) -> float:
    return TOLERANCE[check.dtype] * FACTORS.get(what, PARAMETER)


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


def _keep(arm: str, rows: list[Row], recipe: dict[str, Any], *, device: str, seconds: float) -> None:
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
    cases = {tuple(row[part.name] for part in fields(Check)) for row in rows}
    metrics |= {"cases": len(cases), "rows": len(rows), "wrong": sum(not row["right"] for row in rows)}
    timing.keep(
        EXPERIMENT,
        arm,
        metrics,
        rows,
        device=device,
        packages=("torch", "triton", "numpy"),
        scale="full" if device == "cuda" else "smoke",
        recipe=recipe,
        wall_seconds=seconds,
    )
