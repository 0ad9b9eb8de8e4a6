"""Time and peak memory of one case, in a process of its own."""

import gc
import resource
import statistics
import sys
import time
from pathlib import Path

import torch

from gkalib.bench.registry import Benchmark, Case, benchmarks

STATUS = Path("/proc/self/status")
SECONDS = 6.0  # of repeated runs for a case; at least three runs whatever they take


def _mebibytes(field: str) -> float:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


def _reset_peak(device: str) -> float:
    """Forget the peak so far and return the memory held now, in MiB."""
    gc.collect()
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated() / 2**20
    if STATUS.exists():
        Path("/proc/self/clear_refs").write_text("5")
        return _mebibytes("VmRSS")
    return _peak(device)


def _peak(device: str) -> float:
    """The most memory held since the peak was reset, in MiB."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    if STATUS.exists():
        return _mebibytes("VmHWM")
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage counts bytes on macOS, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def measure(name: str, case: Case) -> Case:
    """Run a case and return it with its times in milliseconds and its memory in MiB.

    ``peak_mib`` is what the runs took beyond the inputs, ``process_mib`` the whole process's peak.
    """
    device = case.get("device", "cpu")
    benchmark = benchmarks()[name]
    assert isinstance(benchmark, Benchmark)
    function = benchmark.prepare(case)

    def once() -> float:
        start = time.perf_counter()
        function()
        if device == "cuda":
            torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - start)

    with torch.no_grad():
        first = once()  # compiles, allocates, warms caches
        held = _reset_peak(device)
        times = [once()]
        while len(times) < 3 or (sum(times) < 1e3 * SECONDS and len(times) < 200):
            times.append(once())
        peak = _peak(device)
    quantiles = statistics.quantiles(times, n=10, method="inclusive")
    return {
        **case,
        "ms": statistics.median(times),
        "ms_q10": quantiles[0],
        "ms_q90": quantiles[-1],
        "ms_first": first,
        "runs": len(times),
        "threads": torch.get_num_threads(),
        "peak_mib": max(0.0, peak - held),
        "process_mib": peak,
    }
