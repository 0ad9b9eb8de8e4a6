"""Runs an experiment, trained or measured, and keeps a record of every arm and seed."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, final

import torch

from gkalib import results
from gkalib.experiments.loop import Measure, train
from gkalib.experiments.study import Study
from gkalib.experiments.sweep import RATES, SEED, sweep
from gkalib.results.record import digest

Numbers = tuple[dict[str, float], list[dict[str, Any]]]
"""The metrics and the rows of a record."""


class Trained(NamedTuple):
    """An experiment whose arms are trained.

    Args:
        studies: makes one an arm.
        measure: what is measured of each beyond the loss.
    """

    studies: Callable[[], list[Study]]
    measure: Measure | None = None

    @property
    def name(self) -> str:
        """Of its records."""
        return self.studies()[0].experiment


@final
@dataclass(frozen=True, kw_only=True)
class Measured:
    """An experiment whose arms are measured.

    Args:
        name: of its records.
        arms: from a seed to what is measured, by the name of the arm.
        recipe: from an arm to every setting of it, as JSON.
        scale: of its records.
        device: what it runs on, in words; where the numbers depend on it, more than ``"cpu"``.
        packages: whose versions matter.
        threads: of PyTorch; as many as it takes by itself where not given.
    """

    name: str
    arms: Mapping[str, Callable[[int], Numbers]]
    recipe: Callable[[str], dict[str, Any]] = field(default=lambda arm: {"arm": arm})
    scale: str = "reduced"
    device: str = "cpu"
    packages: tuple[str, ...] = ("torch", "numpy")
    threads: int | None = None

    def measure(self, arm: str, seed: int, *, load: float | None) -> results.Record:
        """Measure one arm, and keep its record.

        Args:
            arm, seed: what is measured.
            load: of the machine before its first arm was measured.
        """
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        torch.manual_seed(seed)
        start = time.perf_counter()
        metrics, rows = self.arms[arm](seed)
        record = results.Record(
            experiment=self.name,
            arm=arm,
            scale=self.scale,
            recipe=self.recipe(arm),
            seed=seed,
            device=self.device,
            wall_seconds=round(time.perf_counter() - start, 1),
            metrics=metrics,
            load=load,
            **results.provenance(*self.packages),
        )
        results.save(record, rows=rows)
        return record


def run(
    experiment: Trained | Measured,
    arms: Sequence[str] = (),
    *,
    seed: int = 0,
    seeds: int = 1,
    smoke: bool = False,
    missing: bool = False,
    threads: int = 1,
    rates: Sequence[float] | None = None,
) -> list[results.Record]:
    """Run an experiment, keep a record of each arm and seed, and print a line for it.

    All arms of a seed are run before the next seed, so that the seeds that are complete can be compared
    wherever a long run is cut. A record is written when its run is complete.

    Args:
        experiment: what is run.
        arms: those to run; all of them where none is named.
        seed, seeds: the first seed, and how many; a sweep has a first seed of its own.
        smoke: train in a few steps; what is measured has no such form.
        missing: leave out each arm and seed that has a record of the same recipe.
        threads: of PyTorch where a model is trained; what is measured has its own.
        rates: choose the learning rate of each arm instead, by ``gkalib.experiments.sweep``: the rates to
            begin with, or none for its own.

    Raises:
        ValueError: if there is no such arm, or what is measured is given rates or a smoke form.
    """
    name = experiment.name
    if isinstance(experiment, Measured) and (smoke or rates is not None):
        raise ValueError(
            f"experiment: {name} is measured, not trained, and has no {'smoke form' if smoke else 'rates'}"
        )
    if isinstance(experiment, Measured):
        call = _measured(experiment)
    else:
        call = _trained(experiment, smoke=smoke, threads=threads, rates=rates, seeds=seeds)
    unknown = [arm for arm in arms if arm not in call]
    if unknown:
        raise ValueError(f"experiment: no arm {unknown[0]!r} in {name!r}. Known: {', '.join(call)}")
    if rates is not None:
        return list(_records(call, [(arm, SEED) for arm in arms or call]))
    there = _there(name) if missing else set()
    wanted = [(arm, one) for one in range(seed, seed + seeds) for arm in arms or call]
    recipes = _recipes(experiment, smoke=smoke) if missing else {}
    return list(_records(call, [(arm, one) for arm, one in wanted if (one, recipes.get(arm)) not in there]))


def _there(name: str) -> set[tuple[int, Any]]:
    """The seed and the recipe of each measured record of an experiment."""
    if name not in results.experiments():
        return set()
    return {
        (record.seed, (record.arm, record.scale, record.recipe_hash))
        for record in results.load(name)
        if record.source == "measured"
    }


def _recipes(experiment: Trained | Measured, *, smoke: bool) -> dict[str, tuple[str, str, str]]:
    """The arm, the scale and the recipe of each arm, as records have them."""
    if isinstance(experiment, Measured):
        return {arm: (arm, experiment.scale, digest(experiment.recipe(arm))) for arm in experiment.arms}
    studies = [study.smoke() if smoke else study for study in experiment.studies()]
    return {one.arm: (one.arm, one.scale, digest(one.recorded())) for one in studies}


def _records(
    call: Mapping[str, Callable[[int], results.Record]], wanted: Sequence[tuple[str, int]]
) -> Iterator[results.Record]:
    for arm, seed in wanted:
        record = call[arm](seed)
        shown = list(record.metrics.items())[:4]
        print(record.run, *(f" {name} {value:.4g}" for name, value in shown), flush=True)
        yield record


def _measured(experiment: Measured) -> dict[str, Callable[[int], results.Record]]:
    load = results.load_average()
    return {arm: lambda seed, arm=arm: experiment.measure(arm, seed, load=load) for arm in experiment.arms}


def _trained(
    experiment: Trained, *, smoke: bool, threads: int, rates: Sequence[float] | None, seeds: int
) -> dict[str, Callable[[int], results.Record]]:
    def run_one(study: Study, seed: int) -> results.Record:
        chosen = replace(study.smoke() if smoke else study, seed=seed)
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            if rates is not None:
                return sweep(chosen, rates=rates or RATES, seeds=seeds)
            return train(chosen, measure=experiment.measure, keep=True)
        finally:
            torch.set_num_threads(before)

    return {study.arm: lambda seed, study=study: run_one(study, seed) for study in experiment.studies()}
