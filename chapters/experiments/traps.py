"""How a benchmark misleads, measured: inputs that stay in the cache, and one number for many runs.

Chapter 21 reads the records.
"""

import statistics
import time

import torch
from torch.utils.benchmark import Timer

from gkalib.bench.timing import cache_bytes
from gkalib.experiments.runner import Measured, Numbers
from gkalib.kernels import Gaussian
from gkalib.results import processor
from gkalib.smoothing import smooth

SIZES = tuple(2**power for power in range(18, 27))  # bytes of one tensor
TOKENS, WIDTH, RUNS = 128, 64, 2000
SECONDS = 0.25  # of repeated runs


def cache(seed: int) -> Numbers:
    """Gigabytes a second of reading a tensor, the same one again and again, or several in turn."""
    metrics, rows = {}, []
    whole = torch.randn(4 * cache_bytes("cpu") // 4)
    for size in SIZES:
        pieces = whole.split(size // 4)[: max(1, whole.nbytes // size)]
        for name, tensors in (("again", pieces[:1] * len(pieces)), ("in_turn", pieces)):
            timer = Timer("for x in tensors: x.sum()", globals={"tensors": tensors})
            ms = 1e3 * timer.blocked_autorange(min_run_time=SECONDS).median / len(tensors)
            metrics[f"gbs_{name}_{size}"] = size / ms / 1e6
            rows.append({"bytes": size, "rotated": name == "in_turn", "ms": ms})
    metrics["cache_mib"] = cache_bytes("cpu") / 2**20
    return metrics, rows


def runs(seed: int) -> Numbers:
    """Milliseconds of every run of one small attention, from the first on."""
    x, kernel, spent = torch.randn(1, 1, TOKENS, WIDTH), Gaussian(WIDTH**0.25), []
    with torch.no_grad():
        for _ in range(RUNS):
            start = time.perf_counter()
            smooth(x, x, x, kernel, method="dense")
            spent.append(1e3 * (time.perf_counter() - start))
    warm = spent[RUNS // 10 :]
    quantiles = statistics.quantiles(warm, n=100, method="inclusive")
    metrics = {
        "first": spent[0],
        "median": statistics.median(warm),
        "mean": statistics.mean(warm),
        "least": min(warm),
        "greatest": max(warm),
        "decile_1": quantiles[9],
        "decile_9": quantiles[89],
    }
    return metrics, [{"run": number, "ms": ms} for number, ms in enumerate(spent)]


MEASURED = Measured(
    name="traps",
    arms={"cache": cache, "runs": runs},
    recipe=lambda arm: {"arm": arm, "threads": 1},
    device=processor(),
    threads=1,
)

EXPERIMENTS = {MEASURED.name: MEASURED}
