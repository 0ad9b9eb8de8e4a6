"""Benchmarks: what the library does, timed beside what it could be replaced by."""

MOVED = {
    "arms": "gkalib.bench.attention",
    "cases": "gkalib.bench.problems",
    "catalog": "gkalib.bench.run",
    "fused": "gkalib.bench.attention",
    "others": "gkalib.bench.lengths",
    "passes": "gkalib.bench.roofline",
    "predictions": "the tables in data/results/predictions",
}


def __getattr__(name: str):
    """Say where what was here is now."""
    if name in MOVED:
        raise ImportError(f"gkalib.bench.{name} is gone; in its place: {MOVED[name]}")
    raise AttributeError(f"module 'gkalib.bench' has no attribute {name!r}")
