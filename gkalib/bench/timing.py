"""How long calls take, as medians of many, and how much memory: on a GPU and on a CPU."""

import ctypes
import gc
import math
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gkalib import results

Call = Callable[[], object]
Row = dict[str, Any]
"""What was measured of an arm."""

SECONDS = 0.25  # of repeated runs
CACHE = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
STATUS = Path("/proc/self/status")


def times(calls: Sequence[Call], device: str, *, seconds: float | None = None) -> list[float]:
    """Milliseconds of a call, one number a measurement; the first runs are not counted.

    On a GPU ``triton.testing.do_bench`` times the first call between two events, and overwrites the cache
    before each run: a measurement is one run. On a CPU a run does all calls, each on inputs of its own; what
    they return is kept until the last has run, so that none writes where another just has. A measurement is
    there the mean of a call in a block of runs, as many as ``torch.utils.benchmark`` chooses: one where it is
    long enough for the clock, else ten, a hundred and so on.

    Args:
        calls: that do the same on different inputs.
        device: ``"cpu"`` or ``"cuda"``.
        seconds: of repeated runs; ``SECONDS`` where not given.

    Chapter 21 teaches it.
    """
    budget = SECONDS if seconds is None else seconds
    if device == "cuda":
        from triton.testing import do_bench  # a CPU's machine may have no Triton

        ms: Any = do_bench(calls[0], rep=round(1e3 * budget), return_mode="all")  # annotated as one number
        return ms
    from torch.utils.benchmark import Timer  # which looks for a compiler of CUDA, and says so

    statement = "kept = [call() for call in calls]"
    timer = Timer(statement, globals={"calls": calls}, num_threads=torch.get_num_threads())
    timer.timeit(1)
    return [1e3 * each / len(calls) for each in timer.blocked_autorange(min_run_time=budget).times]


def processor_seconds(call: Call, runs: int = 1) -> float:
    """The least of some runs' seconds of this process alone: others that use its processor do not count."""
    took = []
    for _ in range(runs):
        start = time.process_time()
        call()
        took.append(time.process_time() - start)
    return min(took)


def columns(ms: Sequence[float]) -> dict[str, float]:
    """The median and the first and last decile, as rows have them."""
    low, middle, high = np.quantile(ms, [0.1, 0.5, 0.9]).tolist()
    return {"ms": middle, "ms_q10": low, "ms_q90": high}


def median_interval(ms: Sequence[float]) -> tuple[float, float]:
    r"""Between which two of n independent times the median of their distribution lies, at about 95 %.

    $$\text{ranks}\quad \frac n2 - 0.98 \sqrt n \quad\text{and}\quad \frac n2 + 0.98 \sqrt n + 1$$

    How many of them lie below it is binomial, whatever the distribution. Chapter 21 teaches it.

    Raises:
        ValueError: if there are fewer than six.
    """
    if len(ms) < 6:
        raise ValueError(f"median_interval: six times at least, not {len(ms)}")
    middle, reach, ordered = len(ms) / 2, 0.98 * math.sqrt(len(ms)), sorted(ms)
    return ordered[round(middle - reach) - 1], ordered[min(len(ms), round(middle + reach + 1)) - 1]


def cache_bytes(device: str) -> int:
    """The size of the last cache before memory: a GPU's L2, a CPU's L3, 32 MiB where it cannot be read."""
    if device == "cuda":
        return torch.cuda.get_device_properties(0).L2_cache_size
    match = re.fullmatch(r"(\d+)K\n", CACHE.read_text()) if CACHE.exists() else None
    return int(match[1]) * 1024 if match else 2**25


def rotation(nbytes: int, device: str) -> int:
    """How many sets of inputs of this size it takes so that none is in the cache when its turn comes."""
    return max(1, min(16, -(-4 * cache_bytes(device) // max(1, nbytes))))


def peak_mib(call: Call, device: str) -> tuple[float, float]:
    """The most memory that a call takes beyond what was held before, and with it, in MiB.

    On a CPU it is the process's memory.
    """
    gc.collect()
    wait(device)
    before = _reset_peak(device)
    result = call()
    wait(device)
    peak = _peak(device)
    del result
    return max(0.0, peak - before), peak


def free() -> None:
    """Give back what a call held, and forget what it compiled."""
    gc.collect()
    torch._dynamo.reset()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def wait(device: str) -> None:
    """Until a device has done what it was asked for."""
    if device == "cuda":
        torch.cuda.synchronize()


def device_name(device: str) -> str:
    """A device in words, as records name it."""
    return torch.cuda.get_device_name() if device == "cuda" else results.processor()


def keep(
    experiment: str,
    arm: str,
    metrics: Mapping[str, int | float],
    rows: Sequence[Row] = (),
    *,
    device: str,
    packages: Sequence[str] = ("torch", "triton"),
    recipe: Mapping[str, Any] | None = None,
    **fields: Any,
) -> None:
    """Save what was measured on a device as a run; the fields are further ones of its record.

    On a GPU its recipe has ``blocks``, the hash of the block sizes that fused programs ran with.
    """
    used = {}
    if device == "cuda":
        from gkalib.smoothing.fused import configs  # imports Triton

        used = {"blocks": configs.blocks()}
    fields["recipe"] = {**(recipe or {}), **used}
    surroundings = {"seed": 0, "device": device_name(device), **results.provenance(*packages)}
    record = results.Record(experiment=experiment, arm=arm, metrics=dict(metrics), **surroundings, **fields)
    results.save(record, rows=rows)


def _status(field: str) -> float:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


def _reset_peak(device: str) -> float:
    """Forget the peak so far and return the memory held now, in MiB."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated() / 2**20
    if STATUS.exists():
        ctypes.CDLL(None).malloc_trim(0)  # else what earlier calls gave back would hide what this one takes
        Path("/proc/self/clear_refs").write_text("5")
        return _status("VmRSS")
    return _peak(device)


def _peak(device: str) -> float:
    """The most memory held since the peak was reset, in MiB."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    if STATUS.exists():
        return _status("VmHWM")
    import resource  # Windows has none

    unit = 1 if sys.platform == "darwin" else 1024  # getrusage counts bytes on macOS, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
