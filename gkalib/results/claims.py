"""What an experiment's records say of its claims: contrasts decided, and the table that shows them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, final

from gkalib.results.contrasts import Check, Contrast, Stated, stated
from gkalib.results.record import Record
from gkalib.results.store import experiments, items, load, missing
from gkalib.results.table import Table
from gkalib.results.verdicts import Estimate, Judgment, pooled, verdicts, with_items

SEEDS = 5  # below so many nothing is decided
HEADER = ("claim", "paper", "ours", "interval", "δ", "scale", "seeds", "verdict")
OWN = {"reproduced": "shown", "not reproduced": "not shown"}  # nobody else claims it
UNKNOWN = Judgment(
    verdict="undecided",
    estimate=Estimate(value=math.nan, error=math.inf, degrees=0),
    low=-math.inf,
    high=math.inf,
)


@final
@dataclass(frozen=True)
class Claims:
    """The claims of an experiment and what came of them; a notebook shows it as HTML, a terminal as text.

    Args:
        judged: each claim, how many seeds all its arms have, and the judgment. The interval is adjusted for
            the other primary claims of its scale; claims beside them have their own.
        behind: by the words of a claim, the records that decide it: those of full runs of the paper's recipe
            where all its arms have one, under the experiment's names of arms and metrics.
    """

    judged: tuple[tuple[Contrast, int, Judgment], ...]
    behind: Mapping[str, Sequence[Record]]

    @property
    def cells(self) -> list[list[str]]:
        """The rows as text: a dash where nothing was run, no row where runs could not test the claim."""
        return [
            [
                one.claim + ("" if one.primary else " (beside)"),
                one.paper or "–",
                number(one, found.estimate.value) if seeds else "–",
                _interval(one, found),
                _expected(one),
                _scale(self.behind[one.claim]),
                str(seeds),
                word(one, found) if seeds else "not run",
            ]
            for one, seeds, found in self.judged
            if not seeds or math.isfinite(found.estimate.value)
        ]

    def __str__(self) -> str:
        parts = [f"  {name}: " for name in HEADER[1:]]
        lines = [[row[0], *map(str.__add__, parts, row[1:])] for row in self.cells]
        return "\n".join(chain.from_iterable(lines))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return Table(HEADER, self.cells, "gkalib-claims")._repr_html_()


def claims(name: str, said: Stated | None = None, *, root: Path | None = None) -> Claims:
    """The claims of an experiment and what its records say of them; without five seeds they are undecided.

    Args:
        name: of the experiment.
        said: its claims; those of its ``claims.json`` where not given.
        root: the store; ``folder()`` where not given.

    Raises:
        ValueError: if there is no such file.
    """
    said = said or stated(name, root=root)
    records, whole = newest(name, said.arms, root=root), _whole(said, root=root)
    reduced = decide(records, said.contrasts, said.checks, root=root)
    full = decide(whole, said.contrasts, root=root)
    judged, behind = [], {}
    for one in said.contrasts:
        some = [record for record in whole if record.arm in one.weights and one.metric in record.metrics]
        found = full[one.claim]
        if not _seeds(some, one):
            some, found = [record for record in records if record.arm in one.weights], reduced[one.claim]
        seeds, behind[one.claim] = len(_seeds(some, one)), some
        if seeds == 1:  # which has no interval
            value = math.fsum(weight * _mean(some, one.metric, arm) for arm, weight in one.weights.items())
            found = replace(found, estimate=replace(found.estimate, value=value))
        judged.append((one, seeds, found if seeds >= SEEDS else replace(found, verdict="undecided")))
    return Claims(tuple(judged), behind)


def newest(name: str, arms: Mapping[str, Mapping[str, Any]], *, root: Path | None = None) -> list[Record]:
    """The newest record of each arm and seed of an experiment whose recipe is the arm's.

    Of runs that were measured from a clean tree, in the order of arms and seeds.
    """
    found: dict[tuple[str, int], Record] = {}
    for record in recorded(name, root=root):
        if record.recipe == arms.get(record.arm) and record.clean and record.source == "measured":
            found.setdefault((record.arm, record.seed), record)
    order = [*arms]
    return [found[key] for key in sorted(found, key=lambda key: (order.index(key[0]), key[1]))]


def _whole(said: Stated, *, root: Path | None) -> list[Record]:
    """The newest full run of each arm and seed, under the experiment's names of arms and metrics."""
    if said.full is None:
        return []
    metrics = {theirs: ours for ours, theirs in said.full.metrics.items()}
    found: dict[tuple[str, int], Record] = {}
    for record in recorded(said.full.recipe, root=root):
        for arm, (theirs, steps) in said.full.arms.items():
            done = (record.arm, record.scale, record.recipe.get("steps")) == (theirs, "full", steps)
            if done and record.clean and record.source == "measured":
                named = {metrics.get(name, name): value for name, value in record.metrics.items()}
                found.setdefault((arm, record.seed), replace(record, arm=arm, metrics=named))
    return [*found.values()]


def _seeds(records: Sequence[Record], one: Contrast) -> set[int]:
    """The seeds that all arms of a contrast have."""
    return set.intersection(
        *({record.seed for record in records if record.arm == arm} for arm in one.weights)
    )


def recorded(name: str, *, root: Path | None = None) -> list[Record]:
    """The runs of an experiment, none where it has not run yet.

    Raises:
        ValueError: where there are no records at all; the message says what to type.
    """
    there = name in experiments(root=root) or (root is None and missing())
    return load(name, root=root) if there else []


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


def decide(
    records: Iterable[Record],
    contrasts: Sequence[Contrast],
    checks: Sequence[Check] = (),
    *,
    root: Path | None = None,
) -> dict[str, Judgment]:
    """What an experiment's records say of its claims, by their words.

    A contrast is fitted beside all arms with its metric on the data sets of its own arms: on another, seeds
    draw other windows. Seeds count where every one of these arms has a record, and the residual is that of
    them all. Where the outcomes of held-out items are kept, these are counted as a sample too. The primary
    contrasts are judged as one table, each other by itself. Without two such seeds a contrast is undecided,
    and so it is with an arm whose check fails, and where the arms ahead are too large.

    Args:
        records: of one scale, the newest of each arm and seed.
        contrasts, checks: of the experiment.
        root: the store with the outcomes of items; ``folder()`` where not given.

    References:
        ``gkalib.results.verdicts`` has the rule.
    """
    records = list(records)
    estimates, found = {}, {}
    for contrast in contrasts:
        sets = [_data(record) for record in records if record.arm in contrast.weights]
        table = _complete([record for record in records if _data(record) in sets], contrast.metric)
        if len(table) > 1 and set(contrast.weights) <= table.keys():
            named = {contrast.claim: contrast.weights}
            one = pooled(table, named)
            kept = _items(records, contrast, table, root)
            estimates |= with_items(one, kept, named) if kept else one
            found[contrast.claim] = contrast
    primary = {claim: each for claim, each in found.items() if each.primary}
    judged = verdicts(primary, estimates) if primary else {}
    for claim in found.keys() - primary.keys():
        judged |= verdicts({claim: found[claim]}, estimates)
    failed = {
        (arm, metric)
        for check in checks
        for arm in check.arms
        if not _mean(records, check.metric, arm) > check.above
        for metric in check.concerns
    }
    return {
        each.claim: replace(judged.get(each.claim, UNKNOWN), verdict="undecided")
        if any((arm, each.metric) in failed for arm in each.weights) or _size(records, each) > 1.1 * each.size
        else judged.get(each.claim, UNKNOWN)
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
    records: Sequence[Record],
    contrast: Contrast,
    table: Mapping[str, Mapping[int, float]],
    root: Path | None,
) -> dict[str, dict[int, Any]]:
    """The outcomes of held-out items of each arm of a contrast, by seed; {} unless all of them are kept."""
    found: dict[str, dict[int, Any]] = {arm: {} for arm in contrast.weights}
    for record in records:
        if record.arm in found and record.seed in table[record.arm]:
            kept = items(record, root=root)
            if contrast.metric not in kept:
                return {}
            found[record.arm][record.seed] = kept[contrast.metric]
    return found


def _size(records: Sequence[Record], contrast: Contrast) -> float:
    """How many times the parameters of the smaller side of a contrast the larger one has, or NaN."""
    size = {arm: _mean(records, "parameters", arm) for arm in contrast.weights}
    more = math.fsum(weight * size[arm] for arm, weight in contrast.weights.items() if weight > 0)
    less = math.fsum(-weight * size[arm] for arm, weight in contrast.weights.items() if weight < 0)
    return max(more, less) / min(more, less) if more and less else math.nan


def _mean(records: Sequence[Record], metric: str, arm: str) -> float:
    """The mean over seeds of a metric of an arm; NaN, which is above nothing, where there is none."""
    values = [record.metrics[metric] for record in records if record.arm == arm and metric in record.metrics]
    return sum(values) / len(values) if values else math.nan


def number(one: Contrast, value: float) -> str:
    """A value in the unit of its table, to a tenth of δ."""
    if not math.isfinite(value):
        return "–"
    factor = 100 if one.unit == "points" else 1
    digits = max(0, 1 - math.floor(math.log10(one.delta * factor))) if one.delta else 1
    return f"{value * factor:+.{digits}f}".replace("-", "−")


def word(one: Contrast, found: Judgment) -> str:
    """The verdict in a table: our own claims are *shown*, and what is not as good is *ahead* or *behind*."""
    if found.verdict != "not reproduced" or one.sign or one.between:
        return OWN.get(found.verdict, found.verdict) if one.own else found.verdict
    return "ahead" if (found.estimate.value > 0) == (one.metric == "accuracy") else "behind"


def _interval(one: Contrast, found: Judgment) -> str:
    """The ends of an interval in the unit of its table; a dash where nothing was measured."""
    if not math.isfinite(found.low):
        return "–"
    return f"{number(one, found.low)} to {number(one, found.high)} {one.unit}"


def _scale(records: Sequence[Record]) -> str:
    """Which scale runs have: how many parameters and steps; a dash where there are none."""
    if not records:
        return "–"
    sizes = sorted(record.metrics["parameters"] for record in records if "parameters" in record.metrics)
    steps = sorted({record.recipe["steps"] for record in records if "steps" in record.recipe})
    ends = dict.fromkeys(millions(size) for size in (sizes[0], sizes[-1])) if sizes else ()
    words = [" to ".join(ends) + " parameters"] * bool(sizes) + [f"{count:,} steps" for count in steps]
    return f"{records[0].scale}: {', '.join(words)}" if words else records[0].scale


def millions(count: int | float) -> str:
    """A number of parameters in millions, to three digits from 1 on, else to two decimals."""
    return f"{count / 1e6:.3g}M" if count >= 1e6 else f"{count / 1e6:.2f}M"


def _expected(one: Contrast) -> str:
    """What would bear the claim out: a side of zero and δ, or an interval."""
    if one.between:
        return "in {:g} to {:g}".format(*one.between)
    side = {1: "above 0, δ = ", -1: "below 0, δ = ", 0: "within ±"}[one.sign]
    return f"{side}{one.delta * (100 if one.unit == 'points' else 1):g}"
