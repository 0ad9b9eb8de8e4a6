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
        "lengths": "the runs data/results/bench/smooth-* and decoding-*, and its code at their commits",
        "others": "the runs data/results/bench/decoding-*, and its code at the commit that they name",
        "passes": "gkalib.bench.roofline",
        "predictions": "the tables in data/results/predictions",
    },
)
