"""What decides an experiment, as data that stand in its file before a run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

Metrics = Mapping[str, Mapping[str, float]]
"""The metrics of one seed's runs, by arm."""


@final
@dataclass(frozen=True, kw_only=True)
class Contrast:
    """A weighted sum of one metric over arms, which a claim says something about.

    Args:
        claim: in words.
        metric: of the records.
        weights: of the arms; they add up to zero, or one arm alone has the weight 1.
        sign: of the sum, if the claim is true; 0 where the claim is that there is no difference, or gives
            an interval.
        delta: the smallest sum that matters, in units of the metric.
        between: the interval that the sum lies in, if the claim is true, instead of a sign.
        primary: whether it is among those that a table is adjusted for.
    """

    claim: str
    metric: str
    weights: Mapping[str, float]
    sign: int = 0
    delta: float = 0.0
    between: tuple[float, float] | None = None
    primary: bool = True

    def of(self, metrics: Metrics) -> float:
        """The sum, of one seed."""
        return sum(weight * metrics[arm][self.metric] for arm, weight in self.weights.items())


@final
@dataclass(frozen=True, kw_only=True)
class Check:
    """What has to hold of some arms, in the mean over seeds, or contrasts between them stay undecided.

    Args:
        reason: why, in words.
        metric: of the records.
        arms: whose.
        above: what the metric has to exceed.
    """

    reason: str
    metric: str
    arms: tuple[str, ...]
    above: float = 0.0


def difference(arm: str, other: str) -> dict[str, float]:
    """The weights of one arm minus another."""
    return {arm: 1.0, other: -1.0}
