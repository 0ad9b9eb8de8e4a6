"""Times and memory on a GPU, and by the same calls on a CPU: warm, on rotated inputs, as medians."""

import contextlib
import gc
import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch

Call = Callable[[], object]

SECONDS = 0.25  # of repeated runs
FEWEST, MOST = 10, 300  # runs
GRAPH_BELOW = 2.0  # milliseconds: what takes longer hides its launches by itself
LARGEST = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")


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
    def deciles(self) -> tuple[float, float]:
        """The first and the last."""
        quantiles = statistics.quantiles(self.ms, n=10, method="inclusive")
        return quantiles[0], quantiles[-1]


def cache_bytes(device: str) -> int:
    """The size of the last cache before memory: a GPU's L2, a CPU's L3, 32 MiB where it cannot be read."""
    if device == "cuda":
        return torch.cuda.get_device_properties(0).L2_cache_size
    found = re.fullmatch(r"(\d+)K\n", LARGEST.read_text()) if LARGEST.exists() else None
    return int(found[1]) * 1024 if found else 2**25


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
    if device == "cuda":
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            return False
    return True


def timed(calls: Sequence[Call], device: str, *, busy: bool = False) -> Times:
    """Time calls that do the same on different inputs.

    Args:
        calls: run one after another; every run does all of them, and its time is divided by their number.
        device: ``"cpu"`` or ``"cuda"``. On the latter a run is timed between two events on the stream, and
            where calls are short a graph of all of them is captured and replayed, if they can be captured.
        busy: read the clock while the device works.

    Chapter 19 teaches it.
    """
    if device != "cuda":
        return Times(tuple(_on_cpu(calls)))
    for _ in range(3):  # compile, allocate, fill caches
        for call in calls:
            call()
    torch.cuda.synchronize()
    once = _between_events([lambda: _all(calls)])[0] / len(calls)
    graph = _captured(calls) if once < GRAPH_BELOW else None
    run: Call = graph.replay if graph else lambda: _all(calls)
    run()
    # Reading the clock takes a while, and the device must not run out of work meanwhile.
    count = _count(600.0, once, 3000) if busy else _count(1e3 * SECONDS, once * len(calls))
    spans = _between_events([run] * count, meanwhile=clock_mhz if busy else None)
    clock = spans.pop() if busy else None
    return Times(tuple(span / len(calls) for span in spans), graph is not None, clock or None)


def peak_mib(call: Call, device: str) -> float | None:
    """The most memory that a call holds beyond what was held before, in MiB; None on a CPU."""
    if device != "cuda":
        return None
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    kept = call()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - held
    del kept
    return peak / 2**20


def clock_mhz() -> float:
    """The clock of the processors now, in MHz; 0 where it cannot be read."""
    if shutil.which("nvidia-smi") is None:
        return 0.0
    command = ["nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits", "--id=0"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return 0.0
    words = done.stdout.split()
    return float(words[0]) if done.returncode == 0 and words and words[0].isdigit() else 0.0


def _all(calls: Sequence[Call]) -> None:
    for call in calls:
        call()


def _count(budget: float, once: float, most: int = MOST) -> int:
    return max(FEWEST, min(most, int(budget / max(once, 1e-6))))


def _on_cpu(calls: Sequence[Call]) -> list[float]:
    """The same by the host's clock."""

    def run() -> float:
        start = time.perf_counter()
        _all(calls)
        return 1e3 * (time.perf_counter() - start) / len(calls)

    run()
    once = run()
    return [run() for _ in range(_count(1e3 * SECONDS, once * len(calls)))]


def _between_events(runs: Sequence[Call], meanwhile: Callable[[], float] | None = None) -> list[float]:
    """Milliseconds of each run; ``meanwhile``'s number comes last."""
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(len(runs) + 1)]
    marks[0].record()
    for run, mark in zip(runs, marks[1:], strict=True):
        run()
        mark.record()
    beside = [] if meanwhile is None else [meanwhile()]
    torch.cuda.synchronize()
    return [first.elapsed_time(last) for first, last in pairwise(marks)] + beside


def _captured(calls: Sequence[Call]) -> torch.cuda.CUDAGraph | None:
    """A graph of all calls, or None if one of them cannot be captured."""
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
            _all(calls)
    except RuntimeError:
        torch.cuda.synchronize()
        return None
    return graph
