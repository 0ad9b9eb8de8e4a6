"""What a line at every query costs on a CPU: time and memory of each way to it, beside softmax attention.

Chapter 14 reads the records.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from gkalib.bench.timing import peak_mib, processor_seconds
from gkalib.experiments.runner import Measured, Numbers
from gkalib.smoothing import smooth
from gkalib.smoothing.local_line import LocalLine

LENGTHS, WIDTH, RIDGE, RUNS = (256, 512, 1024, 2048, 4096, 8192), 64, 1.0, 5

ARMS: dict[str, Callable[..., Tensor]] = {
    "softmax": smooth,
    "cholesky": partial(smooth, degree=1, ridge=RIDGE, method="dense"),
    "conjugate": partial(smooth, degree=1, ridge=RIDGE, method="conjugate"),
    "parallax": lambda query, key, value: smooth(query, key, value, normalizer=LocalLine(slope=query)),
}


@torch.no_grad()
def cost(arm: str, seed: int) -> Numbers:
    """Processor time of one head in float32, forward, the least of some runs, and the most memory in MiB."""
    metrics = {}
    for length in LENGTHS:
        call = partial(ARMS[arm], *torch.randn(3, 1, 1, length, WIDTH))
        call()  # loads what is loaded once
        metrics[f"mebibytes_{length}"] = max(peak_mib(call, "cpu")[0] for _ in range(RUNS))
        metrics[f"seconds_{length}"] = processor_seconds(call, RUNS)
    return metrics, []


MEASURED = Measured(
    name="line-times",
    arms={name: partial(cost, name) for name in ARMS},
    recipe=lambda arm: {"arm": arm, "lengths": list(LENGTHS), "width": WIDTH, "ridge": RIDGE, "threads": 1},
    threads=1,
)

EXPERIMENTS = {MEASURED.name: MEASURED}
