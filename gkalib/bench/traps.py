"""How a benchmark misleads, measured: inputs that stay in the cache, and one number for many runs.

``python -m gkalib.bench.traps`` records the experiment ``traps``; chapter 19 reads it.
"""

import os
import platform
import statistics
import time
from collections.abc import Callable

import torch

from gkalib import results
from gkalib.bench import gpu
from gkalib.kernels import Gaussian
from gkalib.smoothing import smooth

SIZES = tuple(2**power for power in range(18, 27))  # bytes of one tensor
TOKENS, WIDTH, RUNS = 128, 64, 2000

Recorded = tuple[dict[str, float], list[dict[str, object]]]


def cache() -> Recorded:
    """Gigabytes a second of reading a tensor, the same one again and again, or several in turn."""
    metrics, rows = {}, []
    whole = torch.randn(4 * gpu.cache_bytes("cpu") // 4)
    for size in SIZES:
        pieces = whole.split(size // 4)[: max(1, whole.nbytes // size)]
        for name, tensors in (("again", pieces[:1] * len(pieces)), ("in_turn", pieces)):
            times = gpu.timed([lambda x=x: x.sum() for x in tensors], "cpu")
            metrics[f"gbs_{name}_{size}"] = size / times.median / 1e6
            rows.append({"bytes": size, "rotated": name == "in_turn", "ms": times.median})
    metrics["cache_mib"] = gpu.cache_bytes("cpu") / 2**20
    return metrics, rows


def runs() -> Recorded:
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
    return metrics, [{"run": number, "ms": one} for number, one in enumerate(spent)]


ARMS: dict[str, Callable[[], Recorded]] = {"cache": cache, "runs": runs}


def main() -> None:
    """Measure both and record them."""
    torch.set_num_threads(1)
    for name, arm in ARMS.items():
        torch.manual_seed(0)
        start = time.perf_counter()
        metrics, rows = arm()
        record = results.Record(
            experiment="traps",
            arm=name,
            scale="reduced",
            recipe={"arm": name, "threads": 1},
            seed=0,
            device=f"{os.cpu_count()} cores {platform.machine()}",
            wall_seconds=time.perf_counter() - start,
            metrics=metrics,
            **results.provenance("torch", "numpy"),
        )
        results.save(record, rows=rows)
        print(name, "  ".join(f"{key}: {value:.3g}" for key, value in metrics.items()))


if __name__ == "__main__":
    main()
