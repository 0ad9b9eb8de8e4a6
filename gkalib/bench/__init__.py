"""Benchmarks: what the library does, timed beside what it could be replaced by."""

from gkalib.extras import moved

__getattr__ = moved(
    __name__,
    {
        "arms": "gkalib.bench.attention",
        "cases": "gkalib.bench.problems",
        "catalog": "gkalib.bench.run",
        "charts": "chapters.figures.benchmarks, and steps chapters.figures.decoding",
        "fused": "gkalib.bench.attention",
        "loading": "the runs data/results/bench/loading-*, and its code at the commit that they name",
        "others": "gkalib.bench.lengths",
        "passes": "gkalib.bench.roofline",
        "predictions": "the tables in data/results/predictions",
    },
)
