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
Outcome = tuple[dict[str, dict[str, Any]], str]
"""The times of an arm by pass, and the reason where some are not there."""
KEPT = ("ms", "ms_q10", "ms_q90", "tflops", "percent", "percent_stated", "peak_mib")


def time_arms(case: Case) -> list[Row]:
    """Check and time every arm of a case; a row for each arm and pass, with the reason where it did not run.

    What is wrong is not timed. Arms that ``without`` names are left out: they lost the device before. After
    one that loses it here nothing else can run, and the rows say so.
    """
    functorch.donated_buffer = False  # a backward pass is timed many times over one forward
    device, lost = case["device"], ""
    outcomes: dict[str, Outcome] = {}
    repeat: list[Row] = []
    with timing.stream(device):
        rates, clock = roofline.ceilings(device)
        arms_by_name, small = arms(case), arms(_small(case))
        for name, arm in arms_by_name.items():
            if lost or name in case.get("without", ()):
                outcomes[name] = {}, f"{LOST} {lost or name}"
                continue
            passes, reason = _checked_times(name, arm, small[name], case)
            if timing.alive(device):
                timing.free()
            else:
                lost, reason = name, f"{LOST} {name}: {reason}"
            outcomes[name] = passes, reason
        if not lost:
            try:
                repeat = _repeat_first(outcomes, arms_by_name, case)
                # Another program may have slowed one of them: the better rates are nearer to the device's.
                after, clock = roofline.ceilings(device)
                rates = roofline.better(rates, after)
            except RuntimeError as error:  # the arms' times are not lost with it
                print(f"{case['shape']}: not repeated: {reason_of(error)}", flush=True)
    surroundings = {
        "clock_mhz": clock or "",
        "threads": torch.get_num_threads(),
        "products": rates.products,
        "memory": rates.memory,
        "exponentials": rates.exponentials,
    }
    rows = [
        _row(name, arms_by_name[name], case, direction, outcome, rates) | surroundings
        for name, outcome in outcomes.items()
        for direction in case["passes"]
    ]
    return rows + [{**dict.fromkeys(rows[0], ""), **row, **surroundings} for row in repeat]


def _checked_times(name: str, arm: Arm, small: Arm, case: Case) -> Outcome:
    """The times of an arm that is right, of the forward pass alone where there is no other."""
    reason = ""
    for attempt in (case, {**case, "passes": ["forward"]}):
        try:
            if arm.ours:
                check(name, small, {**_small(case), "passes": attempt["passes"]})
            check(name, arm, attempt)
            return _times(arm, attempt), reason
        except AssertionError as error:
            reason = f"{WRONG}: {error}"
        except Exception as error:  # whatever keeps an arm from running is what its row says
            reason = reason or reason_of(error)
        if not timing.alive(case["device"]):
            break
        timing.free()
    return {}, reason


def rehearse(case: Case) -> None:
    """Run once, in the types and shapes of ``time_arms``, what compiles, so that it lies in the caches."""
    functorch.donated_buffer = False
    with timing.stream(case["device"]):
        arms_by_name, small = arms(case), arms(_small(case))
        for name, arm in arms_by_name.items():
            if not name.startswith(("fused", "compiled", "flex")):
                continue
            calls = [(arm, case), (arm, {**case, "passes": ["forward"]})]
            for call, sizes in [(small[name], _small(case)), *calls] if arm.ours else calls:
                try:
                    _values(call.forward, inputs(sizes, seed=0), call, sizes)
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
    tensors = inputs(case, seed=0)
    first = {key: _first(value, whole) for key, value in tensors.items()}
    actual = _values(arm.forward, tensors, arm, case)
    exact = _values(arm.exact, first, arm, case)
    assert actual.keys() == exact.keys(), f"{name}: gradients of {', '.join(actual.keys() ^ exact.keys())}"
    for key in exact:
        sliced = actual[key] if whole or actual[key].ndim < 4 else actual[key][:1]
        if not whole and key not in ("out", "query", "key", "value"):
            continue
        allowed = TOLERANCE[case["dtype"]] * (1 if key == "out" else 2)
        assert sliced.isfinite().all(), f"{name}: {key} has numbers that are not finite"
        error = relative_error(sliced, exact[key])
        what = key if key == "out" else f"the gradient of {key}"
        assert error <= allowed, f"{name}: {what} is off by {error:.1e}, more than {allowed:.0e}"


def _values(forward: Any, tensors: Tensors, arm: Arm, case: Case) -> dict[str, Tensor]:
    """The output, and the gradients where the case has a backward pass."""
    if "backward" not in case["passes"]:
        with torch.no_grad():
            return {"out": forward(tensors)}
    leaves = _leaves(tensors, arm)
    out = forward(tensors)
    # A row operator has scales that its default basis does not use.
    gradients = torch.autograd.grad(
        out, list(leaves.values()), tensors["grad"].to(out.dtype), allow_unused=True
    )
    pairs = zip(leaves, gradients, strict=True)
    return {"out": out.detach(), **{name: gradient for name, gradient in pairs if gradient is not None}}


def _leaves(tensors: Tensors, arm: Arm) -> dict[str, Tensor]:
    """What gets a gradient, by name; a module's parameters one by one."""
    leaves = {}
    for name in arm.leaves:
        if isinstance(tensors[name], nn.Module):
            parameters = tensors[name].named_parameters()
            leaves |= {f"{name}.{path}": leaf for path, leaf in parameters if leaf.requires_grad}
        else:
            leaves[name] = tensors[name].requires_grad_()
    return leaves


def _first(value: Any, whole: bool) -> Any:
    """An input in float64, of the first sequence alone unless the whole batch is wanted."""
    if isinstance(value, nn.Module):
        return copy.deepcopy(value).double()
    wide = value.detach().double()
    return wide[:1] if wide.ndim == 4 and not whole else wide


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


def _times(arm: Arm, case: Case) -> dict[str, dict[str, Any]]:
    """Times and memory of every pass of an arm."""
    device, names = case["device"], {*arm.leaves, "grad", "sigma", "table"}
    first = inputs(case, seed=1)
    nbytes = sum(first[name].nbytes for name in ("query", "key", "value", "grad") if name in names)
    sets = []
    for seed in range(1, timing.rotation(nbytes, device) + 1):
        tensors = first if seed == 1 else inputs(case, seed)
        sets.append({name: value for name, value in tensors.items() if name in names})
    columns = {}
    for direction in case["passes"]:
        calls = _calls(direction, arm, sets)
        times = timing.timed(calls, device)
        with_memory = direction != "backward" and device == "cuda"
        columns[direction] = {
            **times.columns,
            "runs": len(times.ms),
            "sets": len(sets),
            "graph": times.graph,
            "peak_mib": timing.peak_mib(calls[0], device)[0] if with_memory else None,
        }
    return columns


def _calls(direction: str, arm: Arm, sets: list[Tensors]) -> list[timing.Call]:
    """A pass over each set of inputs."""

    def call(tensors: Tensors) -> timing.Call:
        if direction == "forward":
            return torch.no_grad()(lambda: arm.forward(tensors))
        leaves, grad = list(_leaves(tensors, arm).values()), tensors["grad"]
        if direction == "both":
            return lambda: torch.autograd.grad(arm.forward(tensors), leaves, grad, allow_unused=True)
        out = arm.forward(tensors)
        return lambda: torch.autograd.grad(out, leaves, grad, retain_graph=True, allow_unused=True)

    return [call(tensors) for tensors in sets]


def _row(name: str, arm: Arm, case: Case, direction: str, outcome: Outcome, rates: roofline.Rates) -> Row:
    """One row: the times, what they come to in operations a second, and the share of the floor."""
    times, reason = outcome[0].get(direction, {}), "" if direction in outcome[0] else outcome[1]
    row: Row = {"arm": name, "pass": direction, "reason": reason}
    empty = ("ms", "ms_q10", "ms_q90", "runs", "sets", "graph", "peak_mib")
    row |= {key: times.get(key, "") for key in empty}
    floor, flops, bound = roofline.least(case, direction, arm.kind, rates)
    row |= {"floor_ms": 1e3 * floor, "bound": bound, "tflops": "", "percent": "", "percent_stated": ""}
    if times:
        row["tflops"] = flops / times["ms"] / 1e9
        row["percent"] = 1e5 * floor / times["ms"]
        published = roofline.stated(torch.cuda.get_device_name()) if case["device"] == "cuda" else None
        if published:
            stated = roofline.least(case, direction, arm.kind, published)[0]
            row["percent_stated"] = 1e5 * stated / times["ms"]
    return {key: "" if value is None else value for key, value in row.items()}


def _repeat_first(outcomes: dict[str, Outcome], arms_by_name: dict[str, Arm], case: Case) -> list[Row]:
    """The first arm that ran, once more at the end: how far the device has drifted meanwhile."""
    name = next((name for name, (times, _) in outcomes.items() if times), None)
    if name is None:
        return []
    times = _times(arms_by_name[name], {**case, "passes": ["forward"]})["forward"]
    return [{"arm": f"{name}-again", "pass": "forward", "ms": times["ms"]}]


def relative_error(actual: Tensor, exact: Tensor) -> float:
    """‖actual − exact‖ / ‖exact‖ in float64; where the latter is zero, ‖actual‖."""
    return ((actual.double() - exact).norm() / (exact.norm() or 1.0)).item()


def summarize(rows: list[Row]) -> dict[str, float]:
    """The metrics of a shape: ``<column>_<pass>_<arm>``, and ours beside its rivals.

    ``ratio_<rival>_<pass>`` is the rival's time over that of ``fused``, ``ratio_sdpa_<pass>`` that of the
    fastest run of softmax attention: PyTorch's programs with or without a window, and where there is one
    FlexAttention, which skips what it hides; ``memory_sdpa_<pass>`` is the peak of
    ``fused`` over that run's. ``drift`` is the time of the first arm at the end over its first, less one.
    """
    metrics: dict[str, float] = {}
    ran = {(row["arm"], row["pass"]): row for row in rows if row["ms"] != ""}
    for (name, direction), row in ran.items():
        if name.endswith("-again"):
            metrics["drift"] = row["ms"] / ran[name.removesuffix("-again"), direction]["ms"] - 1
            continue
        for column in KEPT:
            if row[column] != "":
                metrics[f"{column}_{direction}_{_key(name)}"] = row[column]
    for direction in dict.fromkeys(row["pass"] for row in rows):
        ours = ran.get(("fused", direction))
        if ours is None:
            continue
        rivals = {
            name: row
            for (name, other), row in ran.items()
            if other == direction and name != "fused" and not name.endswith("-again")
        }
        for name, row in rivals.items():
            metrics[f"ratio_{_key(name)}_{direction}"] = row["ms"] / ours["ms"]
        backends = [row for name, row in rivals.items() if name.startswith(("sdpa-", "flex-softmax"))]
        if backends:
            best = min(backends, key=lambda row: row["ms"])
            metrics[f"ratio_sdpa_{direction}"] = best["ms"] / ours["ms"]
            if best["peak_mib"] not in ("", 0.0) and ours["peak_mib"] != "":
                metrics[f"memory_sdpa_{direction}"] = ours["peak_mib"] / best["peak_mib"]
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


EVERY = ("compiled", "flex", *["others"] * 9)  # arms of a shape, where none are chosen


def seconds(case: Case) -> float:
    """An estimate: a process, its ceilings, and each arm's check and passes, longer if it compiles.

    What compiles is taken to lie in a cache.
    """
    if case["device"] == "cpu":
        return 30.0 if case["scale"] == "smoke" else 240.0
    chosen, passes = case.get("arms", EVERY), len(case["passes"])
    compiled = sum(name.startswith(("compiled", "flex")) for name in chosen)
    return 11.0 + (0.5 + 0.5 * passes) * len(chosen) + 5.0 * compiled * min(2, passes)


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
