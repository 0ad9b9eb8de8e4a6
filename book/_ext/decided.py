"""What experiments decide: their claims, as written before the runs, and what the records say of them."""

import importlib.util
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, final

import gkalib.results
from gkalib.results import Record, experiments
from gkalib.results.verdicts import Judgment

from .results_role import with_minus
from .runs import Runs

SEEDS = 5  # below so many nothing is decided


@cache
def decisions() -> ModuleType:
    """``gkalib.experiments.decisions`` by its path: the package around it imports torch, and pages do not."""
    name = "gkalib.experiments.decisions"
    if name in sys.modules:
        return sys.modules[name]
    path = Path(gkalib.results.__file__).parents[1] / "experiments" / "decisions.py"
    spec = importlib.util.spec_from_file_location("_ext_decisions", path)
    assert spec is not None and spec.loader is not None
    module = sys.modules["_ext_decisions"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@final
@dataclass(frozen=True, kw_only=True)
class Claims:
    """The claims of an experiment.

    Args:
        contrasts: by the claim's words.
        judged: what the records say of each.
        record: one of them, or None.
        seeds: of each claim, how many all the arms that it compares have.
        data: what the models are trained on.
    """

    contrasts: Mapping[str, Any]
    judged: Mapping[str, Judgment]
    record: Record | None
    seeds: Mapping[str, int]
    data: str

    def shown(self, claim: str) -> str:
        """The contrast as measured, with its interval and the smallest effect that matters."""
        found, contrast = self.judged[claim], self.contrasts[claim]
        if not math.isfinite(found.estimate.value):
            return "nothing to measure in these runs"
        times = 100 if contrast.unit == "points" else 1
        value, low, high = (times * one for one in (found.estimate.value, found.low, found.high))
        said = with_minus(f"{value:.3g} {contrast.unit}, from {low:.3g} to {high:.3g}")
        return said + (f", δ {times * contrast.delta:g}" if contrast.delta else "")


@final
@dataclass
class Decided:
    """The experiments that decide claims, from ``contrasts.json``, a copy that ``book/arms.py`` writes.

    Args:
        runs: of the store.
    """

    runs: Runs

    @cached_property
    def known(self) -> dict[str, dict[str, Any]]:
        """By experiment: its contrasts, checks, arms and data."""
        path = self.runs.store / "papers" / "contrasts.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    def claims(self, experiment: str) -> Claims:
        """The claims of an experiment.

        Raises:
            ValueError: if it is not in the file.
        """
        if experiment not in self.known:
            raise ValueError(f"{experiment} decides nothing that contrasts.json holds: python book/arms.py")
        known = self.known[experiment]
        contrasts = [contrast_of(fields) for fields in known["contrasts"]]
        records = self.records(experiment, known["arms"])
        ran = {arm: {record.seed for record in records if record.arm == arm} for arm in known["arms"]}
        seeds = {each.claim: len(set.intersection(*(ran[arm] for arm in each.weights))) for each in contrasts}
        checks = [
            decisions().Check(**{**one, "arms": tuple(one["arms"]), "concerns": tuple(one["concerns"])})
            for one in known["checks"]
        ]
        judged = {
            claim: one if seeds[claim] >= SEEDS else replace(one, verdict="undecided")
            for claim, one in decisions().decide(records, contrasts, checks).items()
        }
        return Claims(
            contrasts={each.claim: each for each in contrasts},
            judged=judged,
            record=records[0] if records else None,
            seeds=seeds,
            data=known["data"],
        )

    def records(self, experiment: str, arms: list[str]) -> list[Record]:
        """The newest runs of each arm and seed."""
        if experiment not in experiments(root=self.runs.store):
            return []
        return [record for arm in arms for record in self.runs.newest(experiment, arm)]


def contrast_of(fields: dict[str, Any]) -> Any:
    """A contrast from its fields in JSON."""
    between = fields["between"]
    return decisions().Contrast(**{**fields, "between": tuple(between) if between else None})
