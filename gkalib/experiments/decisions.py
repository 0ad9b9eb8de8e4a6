"""What decides an experiment, as data that stand in its file before a run, and what its records then say."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

from gkalib.results import Record, items
from gkalib.results.verdicts import Claim, Estimate, Judgment, pooled, verdicts, with_items

UNKNOWN = Estimate(value=math.nan, error=math.inf, degrees=0)


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
        paper: what its paper has, in words or numbers.
        unit: of the metric; of ``"points"`` there are a hundred in 1.
    """

    claim: str
    metric: str
    weights: Mapping[str, float]
    sign: int = 0
    delta: float = 0.0
    between: tuple[float, float] | None = None
    primary: bool = True
    paper: str = ""
    unit: str = "nats"

    def __post_init__(self) -> None:
        """Refuse what claims nothing."""
        _ = self.stated

    @property
    def stated(self) -> Claim:
        """What is claimed of the sum."""
        return Claim(sign=self.sign, delta=self.delta, between=self.between)


@final
@dataclass(frozen=True, kw_only=True)
class Check:
    """What has to hold of some arms, in the mean over seeds, or contrasts of theirs stay undecided.

    Args:
        reason: why, in words.
        metric: of the records.
        arms: whose.
        concerns: the metrics of the contrasts that need it.
        above: what the metric has to exceed.
    """

    reason: str
    metric: str
    arms: tuple[str, ...]
    concerns: tuple[str, ...]
    above: float = 0.0


def difference(arm: str, other: str) -> dict[str, float]:
    """The weights of one arm minus another."""
    return {arm: 1.0, other: -1.0}


def differences(
    records: Iterable[Record], pairs: Mapping[str, tuple[str, str]], *, metric: str, delta: float
) -> dict[str, Judgment]:
    """What the records say of differences beside the claims, each with an interval of its own.

    Args:
        records: as for ``decide``.
        pairs: by name, an arm and the arm that is subtracted.
        metric: of the records.
        delta: the smallest difference that matters.
    """
    beside = [
        Contrast(claim=name, metric=metric, weights=difference(*pair), delta=delta, primary=False)
        for name, pair in pairs.items()
    ]
    return decide(records, beside)


def against_softmax(studies: Sequence[Any], *, metric: str, delta: float, unit: str) -> tuple[Contrast, ...]:
    """That each arm is as good as softmax attention's, within δ."""
    return tuple(
        Contrast(
            claim=f"{study.arm} is as good as softmax attention",
            metric=metric,
            weights=difference(study.arm, "softmax"),
            delta=delta,
            unit=unit,
        )
        for study in studies
        if study.arm != "softmax"
    )


def decide(
    records: Iterable[Record], contrasts: Sequence[Contrast], checks: Sequence[Check] = ()
) -> dict[str, Judgment]:
    """What an experiment's records say of its claims, by their words.

    A contrast is fitted beside all arms with its metric on the data sets of its own arms: on another, seeds
    draw other windows. Seeds count where every one of these arms has a record, and the residual is that of
    them all. Where the outcomes of held-out items are kept, these are counted as a sample too. The primary
    contrasts are judged as one table, each other by itself. Without two such seeds a contrast is undecided,
    and so it is with an arm whose check fails.

    Args:
        records: of one scale, the newest of each arm and seed.
        contrasts, checks: of the experiment.

    References:
        ``gkalib.results.verdicts`` has the rule.
    """
    records = list(records)
    estimates, stated = {}, {}
    for contrast in contrasts:
        sets = [_data(record) for record in records if record.arm in contrast.weights]
        table = _complete([record for record in records if _data(record) in sets], contrast.metric)
        if len(table) > 1 and set(contrast.weights) <= table.keys():
            named = {contrast.claim: contrast.weights}
            found = pooled(table, named)
            kept = _items(records, contrast, table)
            estimates |= with_items(found, kept, named) if kept else found
            stated[contrast.claim] = contrast
    primary = {claim: each.stated for claim, each in stated.items() if each.primary}
    judged = verdicts(primary, estimates) if primary else {}
    for claim in stated.keys() - primary.keys():
        judged |= verdicts({claim: stated[claim].stated}, estimates)
    unknown = Judgment(verdict="undecided", estimate=UNKNOWN, low=-math.inf, high=math.inf)
    failed = {
        (arm, metric)
        for check in checks
        for arm in check.arms
        if not _mean(records, check.metric, arm) > check.above
        for metric in check.concerns
    }
    return {
        each.claim: replace(judged.get(each.claim, unknown), verdict="undecided")
        if any((arm, each.metric) in failed for arm in each.weights)
        else judged.get(each.claim, unknown)
        for each in contrasts
    }


def _data(record: Record) -> tuple[Any, Any]:
    """The data set of a run: wrapped and unwrapped lines of one text are two."""
    return record.recipe.get("task"), record.recipe.get("data")


def _complete(records: Sequence[Record], metric: str) -> dict[str, dict[int, float]]:
    """The outcomes of each arm that has the metric, over the seeds that all of them have; {} below two."""
    runs: dict[str, dict[int, float]] = {}
    for record in records:
        if metric in record.metrics:
            runs.setdefault(record.arm, {})[record.seed] = float(record.metrics[metric])
    seeds = set.intersection(*map(set, runs.values())) if runs else set()
    return (
        {arm: {seed: own[seed] for seed in sorted(seeds)} for arm, own in runs.items()}
        if len(seeds) > 1
        else {}
    )


def _items(
    records: Sequence[Record], contrast: Contrast, table: Mapping[str, Mapping[int, float]]
) -> dict[str, dict[int, Any]]:
    """The outcomes of held-out items of each arm of a contrast, by seed; {} unless all of them are kept."""
    found: dict[str, dict[int, Any]] = {arm: {} for arm in contrast.weights}
    for record in records:
        if record.arm in found and record.seed in table[record.arm]:
            kept = items(record)
            if contrast.metric not in kept:
                return {}
            found[record.arm][record.seed] = kept[contrast.metric]
    return found


def _mean(records: Sequence[Record], metric: str, arm: str) -> float:
    """The mean over seeds of a metric of an arm; NaN, which is above nothing, where there is none."""
    values = [record.metrics[metric] for record in records if record.arm == arm and metric in record.metrics]
    return sum(values) / len(values) if values else math.nan
