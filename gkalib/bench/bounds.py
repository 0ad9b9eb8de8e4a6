"""What a fused operation as it is written has to do, resource by resource: what holds it where it is slow."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import final

from gkalib.bench.registry import Case
from gkalib.bench.roofline import TILE, Floor, Rates, floor, padding, work

COMPILED = Path(__file__).resolve().parents[1] / "smoothing" / "fused" / "ahead.json"
LANES = 128 / 16  # instructions of a lane in the time of one exponential, on every processor
PROGRAMS = {
    ("gka", "forward"): ("gka_forward", ("gka_forward",)),
    ("gka", "backward"): ("gka_backward", ("gka_backward",)),
    ("rbf", "forward"): ("rbf_forward", ("smooth_forward",)),
    ("rbf", "backward"): ("rbf_backward", ("smooth_backward_query", "smooth_backward_key")),
    ("gpa", "forward"): ("gpa_forward", ("smooth_forward",)),
    ("gpa", "backward"): ("gpa_backward", ("smooth_backward_query", "smooth_backward_key")),
    ("karat", "forward"): ("row_features", ("row_operator_forward",)),
    ("karat", "backward"): ("row_features_backward", ("row_operator_query", "row_operator_key")),
}
"""The sample call of each family and pass, and the programs of it that go over all pairs."""


@final
@dataclass(frozen=True)
class Held:
    """The resource that a pass needs longest, and how much of its time that explains.

    Args:
        bound: products (tensor cores), exponentials, memory or issue.
        seconds: that it needs at the measured rate.
        share: of the time that was measured.
    """

    bound: str
    seconds: float
    share: float

    def __str__(self) -> str:
        name = "tensor cores" if self.bound == "products" else self.bound
        if self.share < 0.5:
            return f"no counted rate: {name}, the longest, is {self.share:.0%} of the time"
        return f"{name}, {self.share:.0%} of the time"


@cache
def _per_score() -> dict[tuple[str, int, str, int, str], float]:
    """Instructions of a lane for each pair, by sample call, width, mask, length and program."""
    return {
        (row["case"], row["width"], row["mask"], row["length"], row["program"]): row["per_score"]
        for row in json.loads(COMPILED.read_text(encoding="utf-8"))
        if row["dtype"] == "bfloat16" and row["per_score"]
    }


def instructions(case: Case, direction: str) -> float:
    """What a lane issues for a pair in all programs of a pass, as compiled; 0 where that is not recorded."""
    name, programs = PROGRAMS.get((case["family"], direction), ("", ()))
    known, total = _per_score(), 0.0
    for program in programs:
        masks = ("band", "all") if case["causal"] else ("all",)
        keys = ((name, case["width"], mask, length, program) for mask in masks for length in (1024, 197))
        total += next((known[key] for key in keys if key in known), 0.0)
    return total


def designed(case: Case, direction: str, kind: str, rates: Rates) -> Floor:
    """The seconds that each resource needs for a pass as our programs do it, tiles at the edges included."""
    if case["queries"] != case["keys"]:  # decoding: nothing but the cache counts
        return floor(work(case, direction, kind), rates)
    mask = {"causal": case["causal"], "window": case["window"]}
    waste = padding(case["queries"], case["keys"], **mask, tile=TILE)
    done = work(case, direction, kind, designed=True, instructions=instructions(case, direction))
    issue = Rates(rates.products, rates.memory, rates.exponentials, LANES * rates.exponentials)
    found = floor(done, issue)
    return Floor(found.products * waste, found.exponentials * waste, found.memory, found.issue * waste)


def held(case: Case, direction: str, kind: str, rates: Rates, seconds: float) -> Held:
    """What holds a measured pass; of both passes, the longer one's bound and the sum of their times."""
    floors = [designed(case, one, kind, rates) for one in _passes(direction)]
    longest = max(floors, key=lambda one: one.seconds)
    total = sum(one.seconds for one in floors)
    return Held(longest.bound, total, total / seconds)


def _passes(direction: str) -> Iterator[str]:
    yield from ("forward", "backward") if direction == "both" else (direction,)
