"""What memories of fixed size take to read a text: seconds against length, beside softmax attention.

Chapter 15 reads the records.
"""

import time

import torch

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


def seconds(method: Memory | None, length: int) -> float:
    """Seconds of this process's only thread to read a text; None is softmax."""
    query, key, value = torch.randn(3, 1, HEADS, length, WIDTH)
    query, key = (torch.nn.functional.normalize(each, dim=-1) for each in (query, key))
    gates = {
        "decay": torch.full((1, HEADS, length), -1 / 64),
        "rate": torch.full((1, HEADS, length), 0.5),
        "ridge": torch.ones(HEADS),
    }
    slots = {"mask": Causal(), "normalizer": Unnormalized()}
    problem = MemoryProblem.of(make_problem(query, key, value, Dot(), **slots), **gates)
    start = time.process_time()
    with torch.no_grad():
        if method is None:
            smooth(query, key, value, mask=Causal())
        else:
            compute_output(problem, method)
    return time.process_time() - start


def by_length(method: Memory | None) -> dict[str, float]:
    """The least of twelve runs of each length, in rounds, since others use the machine as well."""
    rounds = [[seconds(method, length) for length in LENGTHS] for _ in range(12)]
    return {f"seconds_{length}": min(took) for length, *took in zip(LENGTHS, *rounds, strict=True)}


MEASURED = Measured(
    name="memories",
    arms={name: lambda seed, method=method: (by_length(method), []) for name, method in ARMS.items()},
    recipe=lambda arm: {"arm": arm, "threads": 1, "heads": HEADS, "width": WIDTH},
    threads=1,
)

EXPERIMENTS = {MEASURED.name: MEASURED}
