"""What can be timed: every benchmark by its name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Case = dict[str, Any]


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


def benchmarks() -> dict[str, Benchmark]:
    """The benchmarks; each is imported when asked for, with what it needs."""
    from gkalib.bench import regression, smooth

    return {"smooth": smooth.BENCHMARK, "regression": regression.BENCHMARK}
