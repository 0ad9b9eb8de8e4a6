"""What memories of fixed size take to read a text: time and memory by length, beside softmax attention.

Chapter 15 reads the records.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from gkalib.bench.timing import peak_mib, processor_seconds
from gkalib.experiments.runner import Measured
from gkalib.kernels import Dot
from gkalib.masks import Causal
from gkalib.normalizers import Unnormalized
from gkalib.smoothing import Memory, MemoryProblem, compute_output, make_problem, smooth

LENGTHS = (512, 1024, 2048, 4096, 8192)
HEADS, WIDTH = 4, 64
ARMS = {
    "softmax": None,
    "gated": Memory("gated"),
    "delta": Memory("delta"),
    "delta-recurrent": Memory("delta", "recurrent"),
    "mesa": Memory("mesa"),
}


def reading(method: Memory | None, length: int) -> Callable[[], Tensor]:
    """A call that reads a text of random tokens; None is softmax."""
    query, key, value = torch.randn(3, 1, HEADS, length, WIDTH)
    query, key = (torch.nn.functional.normalize(each, dim=-1) for each in (query, key))
    if method is None:
        return partial(smooth, query, key, value, mask=Causal())
    gates = {
        "decay": torch.full((1, HEADS, length), -1 / 64),
        "rate": torch.full((1, HEADS, length), 0.5),
        "ridge": torch.ones(HEADS),
    }
    slots = {"mask": Causal(), "normalizer": Unnormalized()}
    problem = make_problem(query, key, value, Dot(), **slots)
    return partial(compute_output, MemoryProblem.of(problem, **gates), method)


@torch.no_grad()
def by_length(method: Memory | None) -> dict[str, float]:
    """By length, the least time of twelve rounds, as others use the machine, and the most memory in MiB."""
    calls = {length: reading(method, length) for length in LENGTHS}
    for call in calls.values():
        call()  # loads what is loaded once
    memory = {length: max(peak_mib(call, "cpu")[0] for _ in range(3)) for length, call in calls.items()}
    rounds = [[processor_seconds(call) for call in calls.values()] for _ in range(12)]
    times = {f"seconds_{length}": min(took) for length, *took in zip(LENGTHS, *rounds, strict=True)}
    return times | {f"mebibytes_{length}": most for length, most in memory.items()}


MEASURED = Measured(
    name="memories",
    arms={name: lambda seed, method=method: (by_length(method), []) for name, method in ARMS.items()},
    recipe=lambda arm: {"arm": arm, "threads": 1, "heads": HEADS, "width": WIDTH},
    threads=1,
)

EXPERIMENTS = {MEASURED.name: MEASURED}
