"""What can be timed: every benchmark by its name."""

from importlib import import_module

from gkalib.bench.cases import Comparison, Sweep

HOMES = {
    "smooth": "others",
    "regression": "others",
    "decoding": "others",
    "gka": "fused",
    "rbf": "fused",
    "gpa": "fused",
    "karat": "fused",
    "decode": "fused",
    "models": "models",
    "loading": "loading",
}
"""The module of each benchmark; it is imported when the benchmark is asked for, with what it needs."""


def benchmark(name: str) -> Sweep | Comparison:
    """A benchmark by its name.

    Raises:
        ValueError: if there is none.
    """
    if name not in HOMES:
        raise ValueError(f"bench: no benchmark named {name!r}. Known: {', '.join(HOMES)}")
    return import_module(f"gkalib.bench.{HOMES[name]}").BENCHMARKS[name]
