"""What a device reaches, what a node and a call cost, and where the time of a short problem goes.

The predictions of `gkalib.bench.predictions` rest on such numbers; here they are measured.
"""

import csv
import io
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from gkalib.bench import arms, roofline, timing
from gkalib.bench.cases import Case, Row, shapes
from gkalib.kernels import Gaussian
from gkalib.smoothing import smooth

EXPERIMENT = "limits"
NODES = 100  # of a graph whose kernels do next to nothing
CALLS = {"cuda": 300, "cpu": 2}  # of an operation, whose host time is read
RUNS = {"cuda": 10, "cpu": 1}  # that are profiled
SECTIONS = ("SpeedOfLight", "SchedulerStats", "WarpStateStats")  # of Nsight Compute
PATIENCE = 90.0  # seconds that it, or another tool, may take
WORDS = ("Kernel Name", "Metric Name", "Metric Unit", "Metric Value")


def ceilings(*, device: str) -> dict[str, float]:
    """A copy, a large product, the clock; a graph's node; the host's time of short calls, ours and PyTorch's.

    The record is ``limits/ceilings``.
    """
    start = time.perf_counter()
    with timing.stream(device):
        rates, clock = roofline.ceilings(device)
        metrics = {name: float(value) for name, value in vars(rates).items() if value != float("inf")}
        metrics |= {"clock_mhz": clock} if clock else {}
        metrics |= {f"host_us_{name}": _host_us(call, device) for name, call in _short(device).items()}
        if device == "cuda":
            number = torch.zeros(1, device=device)
            graph = timing.timed([lambda: number.add_(1.0)] * NODES, device, graph=True)
            metrics["node_us"] = 1e3 * graph.median
    print("\n".join(f"{name} {value:.4g}" for name, value in metrics.items()))
    _keep("ceilings", metrics, [], device, {"nodes": NODES, "calls": CALLS[device]}, start)
    return metrics


def _short(device: str) -> dict[str, Callable[[], object]]:
    """Calls whose launches take longer than their work: Gaussian attention of one tensor, and PyTorch's."""
    dtype, method = (torch.bfloat16, "fused") if device == "cuda" else (torch.float32, "dense")
    x = torch.randn(1, 1, 64, 64, device=device, dtype=dtype)
    sigma = torch.ones(1, device=device)
    # tensors that a call may give a gradient to
    leaves = x.clone().requires_grad_(), sigma.clone().requires_grad_()

    def ours(x: Tensor, sigma: Tensor) -> Tensor:
        return smooth(x, kernel=Gaussian(sigma), method=method)

    def both() -> object:
        return torch.autograd.grad(ours(*leaves).sum(), leaves)

    def both_of_sdpa() -> object:
        return torch.autograd.grad(scaled_dot_product_attention(leaves[0], leaves[0], x).sum(), leaves[:1])

    return {
        "gka_forward": torch.no_grad()(lambda: ours(x, sigma)),
        "gka_both": both,
        "sdpa_forward": torch.no_grad()(lambda: scaled_dot_product_attention(x, x, x)),
        "sdpa_both": both_of_sdpa,
    }


def _host_us(call: Callable[[], object], device: str) -> float:
    """Microseconds that the host takes to ask for a call; the device may still be at work."""
    for _ in range(CALLS[device] // 10 + 1):
        call()
    timing.wait(device)
    start = time.perf_counter()
    for _ in range(CALLS[device]):
        call()
    seconds = time.perf_counter() - start
    timing.wait(device)
    return 1e6 * seconds / CALLS[device]


def vit_ti(device: str) -> Callable[[], object]:
    """Forward and backward pass of Gaussian attention at the shape of a ViT-Ti; in small on a CPU."""
    scale = "full" if device == "cuda" else "smoke"
    case: Case = next(case for case in shapes("gka", scale, device) if case["shape"] == "vit-ti")
    arm, tensors = arms.arms({**case, "arms": ["fused"]})["fused"], arms.inputs(case, seed=1)
    leaves = [tensors[name].requires_grad_() for name in arm.leaves]
    return lambda: torch.autograd.grad(arm.forward(tensors), leaves, tensors["grad"])


def profile(*, device: str) -> list[Row]:
    """The time of each kernel of a ViT-Ti's attention, and what Nsight Compute counts where it is installed.

    The record is ``limits/profile``.
    """
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiled

    start, call = time.perf_counter(), vit_ti(device)
    for _ in range(3 if device == "cuda" else 1):
        call()
    timing.wait(device)
    chosen = [ProfilerActivity.CUDA if device == "cuda" else ProfilerActivity.CPU]
    with profiled(activities=chosen, acc_events=True) as seen:
        for _ in range(RUNS[device]):
            call()
        timing.wait(device)
    rows = []
    for event in seen.key_averages():
        total = event.self_device_time_total if device == "cuda" else event.self_cpu_time_total
        if total:
            rows.append(_row(event.key, "time", "us", total / RUNS[device]))
    if device == "cuda":
        rows += counted()
    total = sum(row["value"] for row in rows if row["metric"] == "time")
    _keep("profile", {"us": total, "rows": len(rows)}, rows, device, {"runs": RUNS[device]}, start)
    for row in rows:
        print(f"{row['kernel'][:60]:<60}  {row['metric']:<40} {row['value']:>12.4g} {row['unit']}")
    return rows


def counted() -> list[Row]:
    """What Nsight Compute says of the programs of one pass each way; nothing where it is not installed."""
    call = "from gkalib.gpu.limits import vit_ti; call = vit_ti('cuda'); call(); call()"
    sections = [word for section in SECTIONS for word in ("--section", section)]
    options = ["--csv", "--page", "details", *sections, "--clock-control", "none"]
    options += ["--kernel-name", "regex:gka_", "--launch-count", "6"]
    return read(said("ncu", *options, sys.executable, "-c", call))


def said(tool: str, *arguments: str) -> str:
    """What a tool prints; nothing where it is not installed, or has not ended in time."""
    path = shutil.which(tool)
    if path is None:
        print(f"{tool} is not here")
        return ""
    try:
        done = subprocess.run([path, *arguments], capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        print(f"{tool} had not ended after {PATIENCE:.0f} s")
        return ""
    if done.returncode:
        print(done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


def read(text: str) -> list[Row]:
    """The numbers in Nsight Compute's table, which follows whatever the program printed."""
    lines = text.splitlines()
    begin = next((at for at, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    rows = []
    for line in csv.DictReader(io.StringIO("\n".join(lines[begin:]))):
        kernel, metric, unit, value = (line.get(word) or "" for word in WORDS)
        try:
            rows.append(_row(kernel, metric, unit, float(value.replace(",", ""))))
        except ValueError:  # a rule's advice has no number
            continue
    return rows


def _row(kernel: str, metric: str, unit: str, value: float) -> Row:
    return {"kernel": kernel, "metric": metric, "unit": unit, "value": value}


def _keep(
    arm: str, metrics: dict[str, float], rows: list[Row], device: str, recipe: dict[str, Any], start: float
) -> None:
    timing.keep(
        EXPERIMENT,
        arm,
        metrics,
        rows,
        device=device,
        scale="full" if device == "cuda" else "smoke",
        recipe=recipe,
        wall_seconds=time.perf_counter() - start,
    )
