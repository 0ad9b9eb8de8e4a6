"""Differences of arms as experiments judge them, to be drawn."""

from gkalib.results.verdicts import Estimate, Judgment


def judged(verdict: str, low: float, value: float, high: float) -> Judgment:
    found = Estimate(value=value, error=0.01, degrees=16)
    return Judgment(verdict=verdict, estimate=found, low=low, high=high)


FOUND = {
    "a": judged("as good as", -0.005, 0.0, 0.005),
    "b": judged("not reproduced", -0.4, -0.3, -0.2),
    "c": judged("undecided", -0.01, 0.01, 0.03),
}
