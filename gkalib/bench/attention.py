"""Fused operations against all that could be taken in their place, at the shapes of the papers' models."""

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor
from torch._functorch import config as functorch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from gkalib.bench import roofline, timing
from gkalib.bench.problems import Compute, Recipe, exact_problem, leaves, problem, softmax, upstream, values
from gkalib.bench.timing import Row
from gkalib.kernels import Kernel, over_heads
from gkalib.masks import Causal, Mask
from gkalib.normalizers import Normalizer, RowSum
from gkalib.smoothing import Problem, make_problem, smooth

WRONG = "wrong result"  # how the reason of such a row begins
# ‖out − exact‖ / ‖exact‖ against float64; gradients may have twice that, and parameters' are seen in float32
TOLERANCE = {"float64": 1e-10, "float32": 1e-4, "float16": 4e-3, "bfloat16": 2e-2}
SMALL = 100  # tokens, of the check in float32
TIMES = ("ms", "ms_q10", "ms_q90", "runs", "sets", "peak_mib")
KEPT = ("ms", "ms_q10", "ms_q90", "tflops", "percent", "percent_stated", "peak_mib")


def _unwindowed(given: Problem) -> Problem:
    """The same without its window: what one would run instead, where a backend skips nothing for a mask."""
    return softmax(replace(given, mask=Causal()))


def by(method: str) -> Compute:
    """A method of ``smooth``."""
    return lambda given: smooth(
        *(given.query, given.grouped_key, given.grouped_value, given.kernel),
        mask=given.mask, normalizer=given.normalizer, method=method,
    )  # fmt: skip


BACKENDS = {
    "sdpa-cudnn": SDPBackend.CUDNN_ATTENTION,
    "sdpa-flash": SDPBackend.FLASH_ATTENTION,
    "sdpa-efficient": SDPBackend.EFFICIENT_ATTENTION,
}


@functools.cache
def _allowed(length: int, window: int, device: torch.device) -> Tensor:
    positions = torch.arange(length, device=device)
    lag = positions[:, None] - positions
    return (lag >= 0) & (lag < window)


def sdpa(backend: SDPBackend) -> Compute:
    """PyTorch's attention by one of its backends; a window is a matrix of ones and zeros to it."""

    def compute(given: Problem) -> Tensor:
        causal, window = roofline.band(given)
        allowed = None if window is None else _allowed(given.sizes[3], window, given.query.device)
        with sdpa_kernel(backend):
            return scaled_dot_product_attention(
                given.query, given.key, given.value, attn_mask=allowed, is_causal=causal and allowed is None
            )

    return compute


def eager(
    query: Tensor, key: Tensor, value: Tensor, kernel: Kernel, mask: Mask | None, normalizer: Normalizer
) -> Tensor:
    """Scores in float32, weights and values, each a tensor of its own, as one would write it first."""
    given = make_problem(query, key, value, kernel, mask=mask, normalizer=normalizer)
    form = given.form
    assert form is not None  # each family's kernel has one
    score = over_heads(form.scale) * (query @ key.mT).float()
    of_key = form.key_term(key.float())  # the query's term the row sum takes out
    if of_key is not None:
        score = score + of_key[..., None, :]
    if form.lag_table is not None:
        score = score + given.lag_scores()
    score = given.masked(score, None)
    weights = torch.softmax(score, -1) if isinstance(normalizer, RowSum) else normalizer(score)
    return weights.to(value.dtype) @ value


@functools.cache
def _compiled() -> Callable[..., Tensor]:
    return torch.compile(eager, dynamic=False)


def _written(given: Problem, *, compiled: bool) -> Tensor:
    """``eager``, or the same under ``torch.compile``; the kernel's form is made in each call.

    Raises:
        ValueError: where PyTorch's compiled code would end the process (its issue 196681): with fewer heads
            than a vector has numbers, it stores past the end.
    """
    if compiled and given.query.device.type == "cpu" and given.form is not None and given.form.has_norm:
        raise ValueError("on a CPU PyTorch's compiled code stores numbers past the end of a tensor")
    tensors = given.query, given.grouped_key, given.grouped_value
    return (_compiled() if compiled else eager)(*tensors, given.kernel, given.mask, given.normalizer)


@final
@dataclass(frozen=True)
class Arm:
    """One way to compute an attention.

    Args:
        compute: from a problem to its output.
        of: from a family's problem to the one that is computed in its place.
    """

    compute: Compute
    of: Callable[[Problem], Problem] = lambda given: given


def arms(family: str, *, windowed: bool = False) -> dict[str, Arm]:
    """The arms of a family by name, ours first."""
    every = {"fused": Arm(by("fused"))}
    if family in ("gka", "rbf"):
        every["padded"] = Arm(by("padded"))
    if family == "gpa":
        every["fused-no-table"] = Arm(by("fused"), softmax)
    every |= {name: Arm(sdpa(backend), softmax) for name, backend in BACKENDS.items()}
    if windowed:
        for name in ("sdpa-cudnn", "sdpa-flash"):
            every[f"{name}-unwindowed"] = Arm(sdpa(BACKENDS[name]), _unwindowed)
        every["flex-softmax"] = Arm(by("flex"), softmax)  # it skips what the window hides
    written = {"eager": False, "compiled": True}
    every |= {name: Arm(functools.partial(_written, compiled=made)) for name, made in written.items()}
    return every if family == "karat" else every | {"flex": Arm(by("flex"))}


def arms_of(recipe: Recipe) -> dict[str, Arm]:
    """The arms of a recipe: those that its ``arms`` name, or all of its family."""
    every = arms(recipe["family"], windowed=recipe["window"] is not None)
    return {name: arm for name, arm in every.items() if name in recipe.get("arms", every)}


def check(name: str, compute: Compute, given: Problem, *, backward: bool = True) -> None:
    """Compare what computes a problem with the definition in float64: output and gradients.

    The definition is computed for the first sequence of the batch. Parameters collect their gradient from all
    sequences and are compared in float32, where their terms do not cancel to rounding, and in small batches.

    Raises:
        AssertionError: if a number is not finite or off by more than TOLERANCE.
    """
    dtype = str(given.query.dtype).removeprefix("torch.")
    whole = dtype in ("float32", "float64") and given.sizes[0] <= 2
    definition = by("reference" if given.sizes[3] <= 512 else "dense")
    grad = upstream(given)
    actual = values(compute, given, grad, backward=backward)
    wide, part = exact_problem(given, None if whole else 1), grad if whole else grad[:1]
    exact = values(definition, wide, part.double(), backward=backward)
    assert actual.keys() == exact.keys(), f"{name}: gradients of {', '.join(actual.keys() ^ exact.keys())}"
    for key in exact if whole else [key for key in ("out", "query", "key", "value") if key in exact]:
        found = actual[key] if whole else actual[key][:1]
        allowed = TOLERANCE[dtype] * (1 if key == "out" else 2)
        assert found.isfinite().all(), f"{name}: {key} has numbers that are not finite"
        error = relative_error(found, exact[key])
        what = key if key == "out" else f"the gradient of {key}"
        assert error <= allowed, f"{name}: {what} is off by {error:.1e}, more than {allowed:.0e}"


def relative_error(actual: Tensor, exact: Tensor) -> float:
    """‖actual − exact‖ / ‖exact‖ in float64; where the latter is zero, ‖actual‖."""
    return ((actual.double() - exact).norm() / (exact.norm() or 1.0)).item()


def reason_of(error: Exception) -> str:
    """The first line of an error, without paths of this machine, for the row of what did not run."""
    text = re.sub(r"(?<![\w.])/[\w./-]+", "…", str(error).strip().split("\n")[0])
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__


def time_arms(recipe: Recipe) -> list[Row]:
    """Check and time every arm of a shape; a row for each arm and pass, with the reason where it did not run.

    What is wrong is not timed. Ours is checked in float32 on few tokens first, with all its gradients.
    """
    functorch.donated_buffer = False  # a backward pass is timed many times over one forward
    known, rows = arms_of(recipe), []
    rates = roofline.ceilings(recipe["device"])
    for name, arm in known.items():
        rows += _rows(name, arm, recipe, rates)
        timing.free()
    first = next((row["arm"] for row in rows if row["ms"] != ""), None)
    if first is not None:  # once more at the end: how far the device has drifted meanwhile
        again = _times(known[first], recipe, "forward")["ms"]
        rows.append(dict.fromkeys(rows[0], "") | {"arm": f"{first}-again", "pass": "forward", "ms": again})
    surroundings = {"threads": torch.get_num_threads(), **vars(rates)}
    surroundings.pop("issue")
    return [row | surroundings for row in rows]


def _rows(name: str, arm: Arm, recipe: Recipe, rates: roofline.Rates) -> Iterator[Row]:
    """The rows of an arm, of the forward pass alone where there is no other."""
    reason, timed = "", {}
    for passes in (recipe["passes"], ["forward"]):
        try:
            backward = "backward" in passes
            if name.startswith("fused"):
                check(name, arm.compute, arm.of(problem(_few(recipe))), backward=backward)
            check(name, arm.compute, arm.of(problem(recipe)), backward=backward)
            timed = {direction: _times(arm, recipe, direction) for direction in passes}
            break
        except AssertionError as error:
            reason = f"{WRONG}: {error}"
        except Exception as error:  # whatever keeps an arm from running is what its row says
            reason = reason or reason_of(error)
        timing.free()
    on_paper = arm.of(problem(recipe, device="meta"))
    for direction in recipe["passes"]:
        found = timed.get(direction, dict.fromkeys(TIMES, ""))
        floor, flops, bound = roofline.least(on_paper, direction, rates)
        row = {"arm": name, "pass": direction, "reason": "" if direction in timed else reason, **found}
        row |= {"floor_ms": 1e3 * floor, "bound": bound, "tflops": "", "percent": "", "percent_stated": ""}
        if direction in timed:
            row |= {"tflops": flops / found["ms"] / 1e9, "percent": 1e5 * floor / found["ms"]}
            published = roofline.stated(timing.device_name(recipe["device"]))
            if published is not None:
                least = roofline.least(on_paper, direction, published)[0]
                row["percent_stated"] = 1e5 * least / found["ms"]
        yield row


def _few(recipe: Recipe) -> Recipe:
    """The same with few tokens and heads, in float32: everything that has a gradient can be compared."""
    window = None if recipe["window"] is None else min(recipe["window"], SMALL // 3)
    few = {name: min(recipe[name], SMALL) for name in ("queries", "keys")}
    heads = min(recipe["heads"], 2)
    return recipe | few | {"batch": 2, "heads": heads, "window": window, "dtype": "float32"}


def _times(arm: Arm, recipe: Recipe, direction: str) -> Row:
    """Times and memory of a pass of an arm, on a CPU over several sets of inputs in turn."""
    device, first = recipe["device"], arm.of(problem(recipe, 1))
    nbytes = sum(tensor.nbytes for tensor in {first.query, first.grouped_key, first.grouped_value})
    one = device == "cuda" or recipe["scale"] == "smoke"  # which only shows that it runs
    count = 1 if one else timing.rotation(nbytes, device)
    others = (arm.of(problem(recipe, seed)) for seed in range(2, count + 1))
    calls = [pass_of(direction, arm.compute, given) for given in (first, *others)]
    ms = timing.times(calls, device)
    with_memory = direction != "backward" and device == "cuda"
    peak = timing.peak_mib(calls[0], device)[0] if with_memory else ""
    return {**timing.columns(ms), "runs": len(ms), "sets": count, "peak_mib": peak}


def pass_of(direction: str, compute: Compute, given: Problem) -> timing.Call:
    """A pass over one set of inputs; the forward pass keeps nothing for another."""
    if direction == "forward":
        return torch.no_grad()(lambda: compute(given))
    wanted = list(leaves(given).values())
    out = compute(given)
    grad = torch.randn_like(out)
    if direction == "both":
        return lambda: torch.autograd.grad(compute(given), wanted, grad, allow_unused=True)
    return lambda: torch.autograd.grad(out, wanted, grad, retain_graph=True, allow_unused=True)


def summarize(rows: list[Row]) -> dict[str, float]:
    """The metrics of a shape: ``<column>_<pass>_<arm>``, and ours beside its rivals.

    ``ratio_<rival>_<pass>`` is the rival's time over that of ``fused``, ``ratio_sdpa_<pass>`` that of the
    fastest run of softmax attention: PyTorch's programs with or without a window, and where there is one
    FlexAttention, which skips what it hides; ``memory_sdpa_<pass>`` is the peak of
    ``fused`` over that run's. ``drift`` is the time of the first arm at the end over its first, less one.
    """
    metrics: dict[str, float] = {}
    ran = {(row["arm"], row["pass"]): row for row in rows if row["ms"] != ""}
    again = {key: ran.pop(key) for key in [*ran] if key[0].endswith("-again")}
    for (name, direction), row in again.items():
        metrics["drift"] = row["ms"] / ran[name.removesuffix("-again"), direction]["ms"] - 1
    for (name, direction), row in ran.items():
        for column in KEPT:
            if row[column] != "":
                metrics[f"{column}_{direction}_{name.replace('-', '_')}"] = row[column]
        ours = ran.get(("fused", direction))
        if ours is not None and name != "fused":
            metrics[f"ratio_{name.replace('-', '_')}_{direction}"] = row["ms"] / ours["ms"]
    for direction in dict.fromkeys(direction for _, direction in ran):
        softmax = [row for (name, other), row in ran.items()
                   if other == direction and name.startswith(("sdpa-", "flex-softmax"))]  # fmt: skip
        ours = ran.get(("fused", direction))
        if softmax and ours is not None:
            best = min(softmax, key=lambda row: row["ms"])
            metrics[f"ratio_sdpa_{direction}"] = best["ms"] / ours["ms"]
            if best["peak_mib"] not in ("", 0.0) and ours["peak_mib"] != "":
                metrics[f"memory_sdpa_{direction}"] = ours["peak_mib"] / best["peak_mib"]
    metrics |= {name: rows[0][name] for name in ("products", "memory", "exponentials")}
    wrong = {row["arm"] for row in rows if row["arm"][:5] == "fused" and row["reason"].startswith(WRONG)}
    return metrics | {"wrong": float(len(wrong)), "cells": len(rows) - len(again), "cells_run": len(ran)}
