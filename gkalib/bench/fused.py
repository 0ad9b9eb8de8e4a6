"""Fused operations against all that could be taken in their place, shape by shape: times, memory, floors."""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch._functorch import config as functorch

from gkalib.bench import roofline, timing
from gkalib.bench.arms import Arm, Tensors, arms, inputs
from gkalib.bench.cases import FAMILIES, LOST, WRONG, Case, Comparison, Row, reason_of, shapes

# ‖out − exact‖ / ‖exact‖ against float64; gradients may have twice that, and parameters' are seen in float32
TOLERANCE = {"float64": 1e-10, "float32": 1e-4, "float16": 4e-3, "bfloat16": 2e-2}
SMALL = 100  # tokens, of the check in float32
KEPT = ("ms", "ms_q10", "ms_q90", "tflops", "percent", "percent_stated", "peak_mib")


def time_arms(case: Case) -> list[Row]:
    """Check and time every arm of a case; a row for each arm and pass, with the reason where it did not run.

    What is wrong is not timed. Arms that ``without`` names are left out: they lost the device before. After
    one that loses it here nothing else can run, and the rows say so.
    """
    functorch.donated_buffer = False  # a backward pass is timed many times over one forward
    device, ran, lost, again = case["device"], [], "", []
    with timing.stream(device):
        rates, clock = roofline.ceilings(device)
        known, small = arms(case), arms(_small(case))
        for name, arm in known.items():
            found, reason = {}, f"{LOST} {lost or name}" if lost or name in case.get("without", ()) else ""
            for wanted in () if reason else (case, {**case, "passes": ["forward"]}):
                try:
                    if arm.ours:
                        check(name, small[name], {**_small(case), "passes": wanted["passes"]})
                    check(name, arm, wanted)
                    found = _passes(arm, wanted)
                    break
                except AssertionError as error:
                    reason = f"{WRONG}: {error}"
                except Exception as error:  # whatever keeps an arm from running is what its row says
                    reason = reason or reason_of(error)
                if not timing.alive(device):
                    lost, reason = name, f"{LOST} {name}: {reason}"
                    break
                timing.free()
            ran.append((name, found, reason))
            if not lost:
                timing.free()
        if not lost:
            again = _again(ran, known, case)
            # Another program may have slowed one of them: the better rates are nearer to the device's.
            after, clock = roofline.ceilings(device)
            rates = roofline.better(rates, after)
    surroundings = {
        "clock_mhz": clock or "",
        "threads": torch.get_num_threads(),
        "products": rates.products,
        "memory": rates.memory,
        "exponentials": rates.exponentials,
    }
    rows = [
        _row(name, known[name], case, one, found.get(one, {}), rates, "" if one in found else reason)
        | surroundings
        for name, found, reason in ran
        for one in case["passes"]
    ]
    return rows + [{**dict.fromkeys(rows[0], ""), **row, **surroundings} for row in again]


def rehearse(case: Case) -> None:
    """Run once, in the types and shapes of ``time_arms``, what compiles, so that it lies in the caches."""
    functorch.donated_buffer = False
    with timing.stream(case["device"]):
        known, small = arms(case), arms(_small(case))
        for name, arm in known.items():
            if not name.startswith(("fused", "compiled", "flex")):
                continue
            todo = [(arm, case), (arm, {**case, "passes": ["forward"]})]
            for one, given in [(small[name], _small(case)), *todo] if arm.ours else todo:
                try:
                    _values(one.forward, inputs(given, seed=0), one, given)
                except Exception as error:  # the measurement will say so
                    print(f"{name}: {reason_of(error)}", flush=True)
                timing.free()


def check(name: str, arm: Arm, case: Case) -> None:
    """Compare an arm with its definition in float64, on the case's own shape: output and gradients.

    The definition is computed for the first sequence of the batch. Parameters collect their gradient from all
    sequences and are compared in float32, where their terms do not cancel to rounding; ``time_arms`` runs
    that on a small case.
    """
    whole = case["dtype"] == "float32" and case["batch"] <= 2
    made = inputs(case, seed=0)
    first = {key: _first(one, whole) for key, one in made.items()}
    found, exact = (
        _values(forward, given, arm, case) for forward, given in ((arm.forward, made), (arm.exact, first))
    )
    assert found.keys() == exact.keys(), f"{name}: gradients of {', '.join(found.keys() ^ exact.keys())}"
    for key in exact:
        sliced = found[key] if whole or found[key].ndim < 4 else found[key][:1]
        if not whole and key not in ("out", "query", "key", "value"):
            continue
        allowed = TOLERANCE[case["dtype"]] * (1 if key == "out" else 2)
        assert sliced.isfinite().all(), f"{name}: {key} has numbers that are not finite"
        error = relative_error(sliced, exact[key])
        what = key if key == "out" else f"the gradient of {key}"
        assert error <= allowed, f"{name}: {what} is off by {error:.1e}, more than {allowed:.0e}"


def _values(forward: Any, given: Tensors, arm: Arm, case: Case) -> dict[str, Tensor]:
    """The output, and the gradients where the case has a backward pass."""
    if "backward" not in case["passes"]:
        with torch.no_grad():
            return {"out": forward(given)}
    leaves = _leaves(given, arm)
    out = forward(given)
    # A row operator has scales that its default basis does not use.
    gradients = torch.autograd.grad(
        out, list(leaves.values()), given["grad"].to(out.dtype), allow_unused=True
    )
    named = zip(leaves, gradients, strict=True)
    return {"out": out.detach(), **{name: one for name, one in named if one is not None}}


def _leaves(given: Tensors, arm: Arm) -> dict[str, Tensor]:
    """What gets a gradient, by name; a module's parameters one by one."""
    found = {}
    for name in arm.leaves:
        one = given[name]
        if isinstance(one, nn.Module):
            found |= {f"{name}.{path}": leaf for path, leaf in one.named_parameters() if leaf.requires_grad}
        else:
            found[name] = one.requires_grad_()
    return found


def _first(one: Any, whole: bool) -> Any:
    """An input in float64, of the first sequence alone unless the whole batch is wanted."""
    if isinstance(one, nn.Module):
        return copy.deepcopy(one).double()
    one = one.detach().double()
    return one[:1] if one.ndim == 4 and not whole else one


def _small(case: Case) -> Case:
    """The same with few tokens and heads, in float32: everything that has a gradient can be compared."""
    window = case["window"]
    return {
        **case,
        "batch": 2,
        "heads": min(case["heads"], 2),
        "queries": min(case["queries"], SMALL),
        "keys": min(case["keys"], SMALL),
        "window": None if window is None else min(window, SMALL // 3),
        "dtype": "float32",
    }


def _passes(arm: Arm, case: Case) -> dict[str, dict[str, Any]]:
    """Times and memory of every pass of an arm."""
    device, kept = case["device"], {*arm.leaves, "grad", "sigma", "table"}
    first = inputs(case, seed=1)
    nbytes = sum(first[name].nbytes for name in ("query", "key", "value", "grad") if name in kept)
    sets = []
    for seed in range(1, timing.rotation(nbytes, device) + 1):
        made = first if seed == 1 else inputs(case, seed)
        sets.append({name: one for name, one in made.items() if name in kept})
    found = {}
    for one in case["passes"]:
        calls = _calls(one, arm, sets)
        times = timing.timed(calls, device)
        measured = one != "backward" and device == "cuda"
        found[one] = {
            **times.columns,
            "runs": len(times.ms),
            "sets": len(sets),
            "graph": times.graph,
            "peak_mib": timing.peak_mib(calls[0], device)[0] if measured else None,
        }
    return found


def _calls(one: str, arm: Arm, sets: list[Tensors]) -> list[timing.Call]:
    """A pass over each set of inputs."""

    def call(given: Tensors) -> timing.Call:
        if one == "forward":
            return torch.no_grad()(lambda: arm.forward(given))
        leaves, grad = list(_leaves(given, arm).values()), given["grad"]
        if one == "both":
            return lambda: torch.autograd.grad(arm.forward(given), leaves, grad, allow_unused=True)
        out = arm.forward(given)
        return lambda: torch.autograd.grad(out, leaves, grad, retain_graph=True, allow_unused=True)

    return [call(given) for given in sets]


def _row(
    name: str, arm: Arm, case: Case, one: str, found: dict[str, Any], rates: roofline.Rates, reason: str
) -> Row:
    """One row: the times, what they come to in operations a second, and the share of the floor."""
    row: Row = {"arm": name, "pass": one, "reason": reason}
    empty = ("ms", "ms_q10", "ms_q90", "runs", "sets", "graph", "peak_mib")
    row |= {key: found.get(key, "") for key in empty}
    floor, flops, bound = roofline.least(case, one, arm.kind, rates)
    row |= {"floor_ms": 1e3 * floor, "bound": bound, "tflops": "", "percent": "", "percent_stated": ""}
    if found:
        row["tflops"] = flops / found["ms"] / 1e9
        row["percent"] = 1e5 * floor / found["ms"]
        published = roofline.stated(torch.cuda.get_device_name()) if case["device"] == "cuda" else None
        if published:
            row["percent_stated"] = 1e5 * roofline.least(case, one, arm.kind, published)[0] / found["ms"]
    return {key: "" if value is None else value for key, value in row.items()}


def _again(ran: list[tuple[str, dict[str, Any], str]], known: dict[str, Arm], case: Case) -> list[Row]:
    """The first arm that ran, once more at the end: how far the device has drifted meanwhile."""
    name = next((name for name, found, _ in ran if found), None)
    if name is None:
        return []
    found = _passes(known[name], {**case, "passes": ["forward"]})["forward"]
    return [{"arm": f"{name}-again", "pass": "forward", "ms": found["ms"]}]


def relative_error(actual: Tensor, exact: Tensor) -> float:
    """‖actual − exact‖ / ‖exact‖ in float64; where the latter is zero, ‖actual‖."""
    return ((actual.double() - exact).norm() / (exact.norm() or 1.0)).item()


def summarize(rows: list[Row]) -> dict[str, float]:
    """The metrics of a shape: ``<column>_<pass>_<arm>``, and ours beside its rivals.

    ``ratio_<rival>_<pass>`` is the rival's time over that of ``fused``, ``ratio_sdpa_<pass>`` that of the
    fastest run of softmax attention, with or without a window; ``memory_sdpa_<pass>`` is the peak of
    ``fused`` over that run's. ``drift`` is the time of the first arm at the end over its first, less one.
    """
    metrics: dict[str, float] = {}
    ran = {(row["arm"], row["pass"]): row for row in rows if row["ms"] != ""}
    for (name, one), row in ran.items():
        if name.endswith("-again"):
            metrics["drift"] = row["ms"] / ran[name.removesuffix("-again"), one]["ms"] - 1
            continue
        for column in KEPT:
            if row[column] != "":
                metrics[f"{column}_{one}_{_key(name)}"] = row[column]
    for one in dict.fromkeys(row["pass"] for row in rows):
        ours = ran.get(("fused", one))
        if ours is None:
            continue
        for name in dict.fromkeys(row["arm"] for row in rows):
            if (name, one) in ran and name != "fused" and not name.endswith("-again"):
                metrics[f"ratio_{_key(name)}_{one}"] = ran[name, one]["ms"] / ours["ms"]
        backends = [row for (name, direction), row in ran.items() if (name[:5], direction) == ("sdpa-", one)]
        if backends:
            best = min(backends, key=lambda row: row["ms"])
            metrics[f"ratio_sdpa_{one}"] = best["ms"] / ours["ms"]
            if best["peak_mib"] not in ("", 0.0) and ours["peak_mib"] != "":
                metrics[f"memory_sdpa_{one}"] = ours["peak_mib"] / best["peak_mib"]
    for name in ("clock_mhz", "products", "memory", "exponentials"):
        if rows and rows[0][name] != "":
            metrics[name] = rows[0][name]
    wrong = {row["arm"] for row in rows if row["arm"][:5] == "fused" and row["reason"].startswith(WRONG)}
    metrics["wrong"] = float(len(wrong))
    metrics["cells"] = len([row for row in rows if not row["arm"].endswith("-again")])
    metrics["cells_run"] = len([key for key in ran if not key[0].endswith("-again")])
    return metrics


def _key(name: str) -> str:
    return name.replace("-", "_")


def seconds(case: Case) -> float:
    """An estimate: a process, its ceilings, and each arm, longer if it compiles, even from a cache."""
    if case["device"] == "cpu":
        return 30.0 if case["scale"] == "smoke" else 240.0
    compiled = 2 if case["family"] != "gpa" else 3
    return 15.0 + 2.0 * 9 + 5.0 * compiled * (2 if len(case["passes"]) > 1 else 1)


BENCHMARKS = {
    family: Comparison(
        lambda scale, device, family=family: shapes(family, scale, device),
        time_arms,
        summarize,
        seconds,
        rehearse,
    )
    for family in FAMILIES
}
