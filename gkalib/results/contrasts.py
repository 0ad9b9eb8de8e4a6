"""What decides an experiment: the content of the ``claims.json`` beside its records, written before a run.

It has ``contrasts``, ``checks``, under ``arms`` the recipe of each arm (a record of another recipe decides
nothing), and under ``full`` the arms of the paper's own training recipe that ask the same.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from gkalib.results.checkout import absent, repository
from gkalib.results.store import folder
from gkalib.results.verdicts import Claim


@final
@dataclass(frozen=True, kw_only=True)
class Contrast(Claim):
    """A weighted sum of one metric over arms, and what is claimed of it: ``sign``, ``delta``, ``between``.

    Args:
        claim: in words.
        metric: of the records.
        weights: of the arms; they add up to zero, or one arm alone has the weight 1.
        primary: whether it is among those that a table is adjusted for.
        paper: what its paper has, in words or numbers.
        unit: of the metric; of ``"points"`` there are a hundred in 1.
        size: in the paper, how many times the parameters of the smaller side the larger one has. Where this
            is a tenth more in our runs, size could be the reason, and the contrast is undecided.
        own: whether we claim it and the paper does not.
    """

    claim: str
    metric: str
    weights: Mapping[str, float]
    primary: bool = True
    paper: str = ""
    unit: str = "nats"
    size: float = math.inf
    own: bool = False


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
    arms: Sequence[str]
    concerns: Sequence[str]
    above: float = 0.0


@final
@dataclass(frozen=True, kw_only=True)
class Full:
    """The paper's own training recipe, whose full runs decide an experiment's claims where they are there.

    Args:
        recipe: its name, which its records have as their experiment.
        arms: by arms of the experiment, what they are called there and the steps of a full run; one of fewer
            decides nothing.
        metrics: what metrics of the experiment are called there, where they have another name.
    """

    recipe: str
    arms: Mapping[str, Sequence[Any]]
    metrics: Mapping[str, str] = field(default_factory=dict)


@final
@dataclass(frozen=True)
class Stated:
    """The content of a ``claims.json``.

    Args:
        contrasts, checks: of the experiment.
        arms: the recipe of each arm.
        full: the recipe whose full runs decide the same, if there is one.
    """

    contrasts: tuple[Contrast, ...]
    checks: tuple[Check, ...]
    arms: Mapping[str, Mapping[str, Any]]
    full: Full | None = None


def stated(name: str, *, root: Path | None = None) -> Stated:
    """What decides an experiment: the file of the store, or where it has none that of the repository.

    Raises:
        ValueError: if neither is there.
    """
    carried = (repository() or Path()) / "data" / "results"
    for home in (root or folder(), carried):
        if (path := home / name / "claims.json").is_file():
            said = json.loads(path.read_text(encoding="utf-8"))
            return Stated(
                tuple(Contrast(**one) for one in said["contrasts"]),
                tuple(Check(**one) for one in said["checks"]),
                said["arms"],
                Full(**said["full"]) if "full" in said else None,
            )
    missing = "" if repository() else f": {absent()}"
    raise ValueError(f"claims: no experiment {name!r} states what decides it{missing}")
