"""The clock of everything that is timed, on a GPU and on a CPU: warm, on rotated inputs, as medians."""

import contextlib
import gc
import math
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, final

import torch

from gkalib import results
from gkalib.bench.cases import Case, Row

Call = Callable[[], object]

SECONDS = 0.25  # of repeated runs
FEWEST, MOST = 10, 300  # runs
GRAPH_BELOW = 2.0  # milliseconds: what takes longer hides its launches by itself
CACHE = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
STATUS = Path("/proc/self/status")


@final
@dataclass(frozen=True)
class Times:
    """Milliseconds of one call, from many runs.

    Args:
        ms: one number a run.
        graph: whether a CUDA graph was replayed.
        clock_mhz: of the processors while it ran, where it was asked for and could be read.
    """

    ms: tuple[float, ...]
    graph: bool = False
    clock_mhz: float | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.ms)

    @property
    def columns(self) -> dict[str, float]:
        """The median and the first and last decile, as rows have them."""
        quantiles = statistics.quantiles(self.ms, n=10, method="inclusive")
        return {"ms": self.median, "ms_q10": quantiles[0], "ms_q90": quantiles[-1]}


def median_interval(ms: Sequence[float]) -> tuple[float, float]:
    r"""Between which two of n independent times the median of their distribution lies, at about 95 %.

    $$\text{ranks}\quad \frac n2 - 0.98 \sqrt n \quad\text{and}\quad \frac n2 + 0.98 \sqrt n + 1$$

    How many of them lie below it is binomial, whatever the distribution. Chapter 19 teaches it.

    Raises:
        ValueError: if there are fewer than six.
    """
    if len(ms) < 6:
        raise ValueError(f"median_interval: six times at least, not {len(ms)}")
    middle, reach, ordered = len(ms) / 2, 0.98 * math.sqrt(len(ms)), sorted(ms)
    return ordered[round(middle - reach) - 1], ordered[min(len(ms), round(middle + reach + 1)) - 1]


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
    root: Path | None = None,
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
    results.save(record, rows=rows, root=root)


def cache_bytes(device: str) -> int:
    """The size of the last cache before memory: a GPU's L2, a CPU's L3, 32 MiB where it cannot be read."""
    if device == "cuda":
        return torch.cuda.get_device_properties(0).L2_cache_size
    match = re.fullmatch(r"(\d+)K\n", CACHE.read_text()) if CACHE.exists() else None
    return int(match[1]) * 1024 if match else 2**25


def rotation(nbytes: int, device: str) -> int:
    """How many sets of inputs of this size it takes so that none is in the cache when its turn comes."""
    return max(1, min(16, -(-4 * cache_bytes(device) // max(1, nbytes))))


@contextlib.contextmanager
def stream(device: str) -> Iterator[None]:
    """Work on one stream that is not the default one, so that what was run can be captured afterwards.

    A backward pass runs on the stream of its forward pass, and none may be captured on the default stream.
    """
    if device != "cuda":
        yield
        return
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        yield
    with contextlib.suppress(RuntimeError):  # the device is lost: what was measured before still counts
        side.synchronize()


def alive(device: str) -> bool:
    """Whether a device still answers: after some errors a GPU does not, in this process."""
    try:
        wait(device)
    except RuntimeError:
        return False
    return True


def free() -> None:
    """Give back what a call held, and forget what it compiled."""
    gc.collect()
    torch._dynamo.reset()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def timed(
    calls: Sequence[Call],
    device: str,
    *,
    busy: bool = False,
    seconds: float | None = None,
    fewest: int | None = None,
    warm: int = 3,
    graph: bool | None = None,
) -> Times:
    """Time calls that do the same on different inputs.

    What calls return is kept until all of them have run, so that none writes where another just has, and
    finds its memory in the cache.

    ``triton.testing.do_bench`` knows no rotated inputs, no graphs and no CPU, so this is our own.

    Args:
        calls: run one after another; every run does all of them, and its time is divided by their number.
        device: ``"cpu"`` or ``"cuda"``. On the latter a run is timed between two events on the stream, and
            where calls are short a graph of all of them is captured and replayed, if they can be captured.
        busy: read the clock while the device works.
        seconds: of repeated runs; ``SECONDS`` where not given.
        fewest: runs that there are at least; ``FEWEST`` where not given.
        warm: runs before the first that is timed.
        graph: whether a graph is replayed; where not given, it is for short calls that can be captured.

    Raises:
        RuntimeError: if a graph was asked for, and a call cannot be captured.

    Chapter 19 teaches it.
    """
    budget, fewest = 1e3 * (SECONDS if seconds is None else seconds), FEWEST if fewest is None else fewest

    def count(each: float, most: int = MOST) -> int:
        return max(fewest, min(most, int(budget / max(each, 1e-6))))

    if device != "cuda":
        _by_clock(calls)
        first = _by_clock(calls)
        return Times(tuple(_by_clock(calls) for _ in range(count(first * len(calls)))))
    for _ in range(warm):  # compile, allocate, fill caches
        _all(calls)
    torch.cuda.synchronize()
    first = _between_events([lambda: _all(calls)])[0] / len(calls)
    captured = _captured(calls, first < GRAPH_BELOW if graph is None else graph, must=graph is True)
    run: Call = captured.replay if captured else lambda: _all(calls)
    run()
    if busy:
        # Reading the clock takes a while, and the device must not run out of work meanwhile.
        budget = 600.0
        *spans, clock = _between_events([run] * count(first, 3000), meanwhile=clock_mhz)
    else:
        spans, clock = _between_events([run] * count(first * len(calls))), None
    return Times(tuple(span / len(calls) for span in spans), captured is not None, clock or None)


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


def time_case(prepare: Callable[[Case], Call], case: Case, seconds: float = 6.0) -> Row:
    """Run a case and return it with its times in milliseconds and its memory in MiB.

    ``peak_mib`` is what a run takes beyond the inputs, ``process_mib`` the whole process's peak.
    """
    device = case.get("device", "cpu")
    with torch.no_grad(), stream(device):
        call = prepare(case)
        wait(device)
        start = time.perf_counter()
        call()  # compiles, allocates, warms caches
        wait(device)
        first = 1e3 * (time.perf_counter() - start)
        peak, whole = peak_mib(call, device)
        times = timed([call], device, seconds=seconds, fewest=3)
    return {
        **case,
        **times.columns,
        "ms_first": first,
        "runs": len(times.ms),
        "threads": torch.get_num_threads(),
        "peak_mib": peak,
        "process_mib": whole,
    }


def clock_mhz() -> float:
    """The clock of the processors now, in MHz; 0 where it cannot be read."""
    if shutil.which("nvidia-smi") is None:
        return 0.0
    command = ["nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits", "--id=0"]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return 0.0
    words = process.stdout.split()
    return float(words[0]) if process.returncode == 0 and words and words[0].isdigit() else 0.0


def wait(device: str) -> None:
    """Until a device has done what it was asked for."""
    if device == "cuda":
        torch.cuda.synchronize()


def _all(calls: Sequence[Call]) -> None:
    """Run them all, and keep what they return until the last has run."""
    kept = [call() for call in calls]
    del kept


def _by_clock(calls: Sequence[Call]) -> float:
    """Milliseconds of a call by the host's clock."""
    start = time.perf_counter()
    _all(calls)
    return 1e3 * (time.perf_counter() - start) / len(calls)


def _between_events(runs: Sequence[Call], meanwhile: Callable[[], float] | None = None) -> list[float]:
    """Milliseconds of each run; ``meanwhile``'s number comes last."""
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(len(runs) + 1)]
    marks[0].record()
    for run, mark in zip(runs, marks[1:], strict=True):
        run()
        mark.record()
    extra = [] if meanwhile is None else [meanwhile()]
    torch.cuda.synchronize()
    return [first.elapsed_time(last) for first, last in pairwise(marks)] + extra


def _captured(calls: Sequence[Call], wanted: bool, *, must: bool) -> torch.cuda.CUDAGraph | None:
    """A graph of all calls; None where none is wanted, or one of them cannot be captured."""
    if not wanted:
        return None
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
            _all(calls)
    except RuntimeError:
        torch.cuda.synchronize()
        _renew_generator()
        if must:
            raise
        return None
    return graph


def _renew_generator() -> None:
    """Give the device's generator a new state: a capture that failed leaves it unfit to draw numbers."""
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    generator.graphsafe_set_state(torch.Generator("cuda").graphsafe_get_state())


def _status(field: str) -> float:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


def _reset_peak(device: str) -> float:
    """Forget the peak so far and return the memory held now, in MiB."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated() / 2**20
    if STATUS.exists():
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
