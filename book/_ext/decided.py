"""What experiments decide: their claims, as written before the runs, and what the records say of them."""

import importlib.util
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, final

import gkalib.results
from gkalib.results import Record, experiments
from gkalib.results.verdicts import Estimate, Judgment

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
        judged: what the records say of each; empty without records.
        record: one of them.
        seeds: how many each arm has.
        data: what the models are trained on.
    """

    contrasts: Mapping[str, Any]
    judged: Mapping[str, Judgment]
    record: Record | None
    seeds: int
    data: str

    def shown(self, claim: str) -> str:
        """The contrast as measured, with its interval and the smallest effect that matters."""
        found, contrast = self.judged[claim], self.contrasts[claim]
        said = f"{found.estimate.value:.3g} ({found.low:.3g} to {found.high:.3g}) in {contrast.metric}"
        return said + (f", δ {contrast.delta:g}" if contrast.delta else "")


@final
@dataclass
class Decided:
    """The experiments that decide claims, from ``contrasts.json``, which ``book/arms.py`` writes.

    Args:
        runs: of the store.
    """

    runs: Runs

    @cached_property
    def known(self) -> dict[str, dict[str, Any]]:
        """By experiment: its contrasts, checks, arms and data, and verdicts that need numpy."""
        path = self.runs.store / "papers" / "contrasts.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    def claims(self, experiment: str) -> Claims:
        """The claims of an experiment.

        Raises:
            ValueError: if it is not in the file, or was judged before its newest records came.
        """
        if experiment not in self.known:
            raise ValueError(f"{experiment} decides nothing that contrasts.json holds: python book/arms.py")
        known = self.known[experiment]
        contrasts = [contrast_of(fields) for fields in known["contrasts"]]
        records = self.records(experiment, known["arms"])
        arms = {record.arm for record in records}
        seeds = min(sum(record.arm == arm for record in records) for arm in arms) if arms else 0
        complete = arms == {*known["arms"]} and seeds > 0
        judged = self._judged(experiment, records, contrasts, known) if complete else {}
        if seeds < SEEDS:
            judged = {claim: replace(one, verdict="undecided") for claim, one in judged.items()}
        return Claims(
            contrasts={each.claim: each for each in contrasts},
            judged=judged,
            record=records[0] if complete else None,
            seeds=seeds,
            data=known["data"],
        )

    def records(self, experiment: str, arms: list[str]) -> list[Record]:
        """The newest runs of each arm and seed."""
        if experiment not in experiments(root=self.runs.store):
            return []
        return [record for arm in arms for record in self.runs.newest(experiment, arm)]

    def _judged(
        self, experiment: str, records: list[Record], contrasts: list[Any], known: dict[str, Any]
    ) -> dict[str, Judgment]:
        module = decisions()
        checks = [module.Check(**{**fields, "arms": tuple(fields["arms"])}) for fields in known["checks"]]
        try:
            return module.decide(records, contrasts, checks)
        except (
            ImportError
        ) as error:  # outcomes of single items are read by numpy, which pages are built without
            if known.get("runs") != mark(records):
                message = f"{experiment} has records that were not judged: python book/arms.py"
                raise ValueError(message) from error
            return {
                claim: Judgment(verdict=verdict, estimate=Estimate(**estimate), low=low, high=high)
                for claim, (verdict, estimate, low, high) in known["judged"].items()
            }


def contrast_of(fields: dict[str, Any]) -> Any:
    """A contrast from its fields in JSON."""
    between = fields["between"]
    return decisions().Contrast(**{**fields, "between": tuple(between) if between else None})


def mark(records: list[Record]) -> list[str]:
    """What tells these records from later ones."""
    return sorted(f"{record.run} {record.date}" for record in records)
