"""What can be timed: every benchmark by its name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Case = dict[str, Any]
Row = dict[str, Any]


@dataclass(frozen=True)
class Benchmark:
    """One benchmark: its cases, how a case is set up, and the check that must pass before anything is timed.

    Args:
        cases: from a scale and a device to the cases; a case is JSON and has an ``arm`` and a size ``n``.
        prepare: from a case to the function to time; inputs are made here, outside the clock.
        gate: raises ``AssertionError`` if the results are not right.
        against: arms that every row is set beside, as the metric ``ratio_<arm>``: their time over the row's.
    """

    cases: Callable[[str, str], list[Case]]
    prepare: Callable[[Case], Callable[[], object]]
    gate: Callable[[str], None]
    against: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """Several arms on one shape, all in one process, so that ratios of their times are of one run.

    A shape's run becomes one record, ``bench/<benchmark>-<shape>``, whose ``metrics.csv`` has a row for every
    arm and pass, with the reason where an arm did not run.

    Args:
        shapes: from a scale and a device to the cases; a case is JSON and has the name of its ``shape``.
        measure: from a case to its rows, each with the reason where an arm did not run or was wrong. It is
            sent to another process, so it is a function of a module.
        summarize: from the rows to the record's metrics.
        seconds: how long a case takes on the device it names: an estimate.
        rehearse: compiles, for a case, what ``measure`` will start, where that is worth a call of its own.
    """

    shapes: Callable[[str, str], list[Case]]
    measure: Callable[[Case], list[Row]]
    summarize: Callable[[list[Row]], dict[str, float]]
    seconds: Callable[[Case], float]
    rehearse: Callable[[Case], None] | None = None


def benchmarks() -> dict[str, Benchmark | Comparison]:
    """The benchmarks; each is imported when asked for, with what it needs."""
    from gkalib.bench import decoding, fused, loading, models, regression, smooth

    return {
        "smooth": smooth.BENCHMARK,
        "regression": regression.BENCHMARK,
        "decoding": decoding.BENCHMARK,
        **fused.BENCHMARKS,
        "models": models.BENCHMARK,
        "loading": loading.BENCHMARK,
    }
