"""Runs an experiment, trained or measured, and keeps a record of every arm and seed."""

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, final

import torch

from gkalib import results
from gkalib.experiments.loop import Measure, evaluate, fit, record_of, train
from gkalib.experiments.study import Study
from gkalib.results.record import digest
from gkalib.training.loop import NotFinite

Numbers = tuple[dict[str, float], list[dict[str, Any]]]
"""The metrics and the rows of a record."""

# The learning rate of an arm is chosen on seeds and held-out items that decide nothing afterward.
SEED = 100  # the first seed of every sweep; those that decide are below
FACTOR = 2.0  # between neighboring rates
RATES = tuple(
    Study.lr * FACTOR**power for power in range(-1, 4)
)  # tried first: a loss may have several valleys


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
    wherever a long run is cut. A record is written when its run is complete. Claims count runs of committed
    files alone: where no commit has the files as they are, a line says so before the first run.

    Args:
        experiment: what is run.
        arms: those to run; all of them where none is named.
        seed, seeds: the first seed, and how many; a sweep has a first seed of its own.
        smoke: train in a few steps; what is measured has no such form.
        missing: leave out each arm and seed that has a record of the same recipe, one of committed files
            unless they are not committed now either.
        threads: of PyTorch where a model is trained; what is measured has its own.
        rates: choose the learning rate of each arm instead, by ``sweep``: the rates to
            begin with, or none for its own.

    Raises:
        ValueError: if there is no such arm, or what is measured is given rates or a smoke form.
    """
    name = experiment.name
    if isinstance(experiment, Measured):
        if smoke or rates is not None:
            lacks = "smoke form" if smoke else "rates"
            raise ValueError(f"experiment: {name} is measured, not trained, and has no {lacks}")
        recipes = {arm: (experiment.scale, experiment.recipe(arm)) for arm in experiment.arms}
        make = partial(experiment.measure, load=results.load_average())
    else:
        studies = {one.arm: one.smoke() if smoke else one for one in experiment.studies()}
        recipes = {arm: (one.scale, one.recorded()) for arm, one in studies.items()}

        def make(arm: str, seed: int) -> results.Record:
            torch.set_num_threads(threads)
            study = replace(studies[arm], seed=seed)
            if rates is not None:
                return sweep(study, rates=rates or RATES, seeds=seeds)
            return train(study, measure=experiment.measure, keep=True)

    if unknown := [arm for arm in arms if arm not in recipes]:
        raise ValueError(f"experiment: no arm {unknown[0]!r} in {name!r}. Known: {', '.join(recipes)}")
    wanted = [(arm, number) for number in range(seed, seed + seeds) for arm in arms or recipes]
    clean = results.provenance()["clean"]
    if rates is not None:
        wanted = [(arm, SEED) for arm in arms or recipes]
    elif missing and name in results.experiments():
        there = [each for each in results.load(name) if each.source == "measured" and each.clean >= clean]
        done = {(each.arm, each.seed, each.scale, each.recipe_hash) for each in there}
        hashes = {arm: (scale, digest(recipe)) for arm, (scale, recipe) in recipes.items()}
        wanted = [(arm, number) for arm, number in wanted if (arm, number, *hashes[arm]) not in done]
    if wanted and not clean:
        print("no commit has the files as they are: claims do not count these runs", file=sys.stderr)
    made, before = [], torch.get_num_threads()
    try:
        for arm, number in wanted:
            made.append(record := make(arm, number))
            shown = list(record.metrics.items())[:4]
            print(record.run, *(f" {metric} {value:.4g}" for metric, value in shown), flush=True)
    finally:
        torch.set_num_threads(before)
    return made


def best_rate(
    study: Study, *, rates: Sequence[float] = RATES, seeds: int = 1
) -> tuple[float, dict[float, list[float]]]:
    """The best of neighboring rates for an arm at its full length, once it lies between two others.

    The first rates are the same whatever the study's own rate is. What is compared is the mean over seeds of
    the loss on a tenth of the training part, which these runs do not train on. A run whose loss is not finite
    is the worst. The rate below it is not taken either, since another seed may break there.

    Args:
        study: the arm, with the first of its seeds.
        rates: tried in any case; beyond them the search goes on in factors of two.
        seeds: how many train at each rate.

    Returns:
        The rate, and the loss of each seed at every rate that was tried.
    """
    losses: dict[float, list[float]] = {}

    def loss(lr: float, seed: int) -> float:
        try:
            found = evaluate(*fit(replace(choosing(study), seed=seed, lr=lr))[:2])["val_loss"]
        except NotFinite:
            return math.inf
        return found if math.isfinite(found) else math.inf

    def loss_at(lr: float) -> float:
        if lr not in losses:
            losses[lr] = [loss(lr, study.seed + number) for number in range(seeds)]
        return sum(losses[lr]) / seeds

    best = min(rates, key=loss_at)
    while (better := min((best, best / FACTOR, best * FACTOR), key=loss_at)) != best:
        best = better
    if math.isinf(loss_at(best * FACTOR)):
        best /= FACTOR
        loss_at(best / FACTOR)  # it lies between two others as well
    return best, dict(sorted(losses.items()))


def choosing(study: Study) -> Study:
    """The study held out from a tenth of its training part."""
    return replace(study, data=study.data | {"choosing": True})


def sweep(study: Study, *, rates: Sequence[float] = RATES, seeds: int = 1) -> results.Record:
    """Choose the rate of an arm by ``best_rate``, and keep a record.

    Args:
        study, rates, seeds: as ``best_rate`` takes them.

    Returns:
        A record of the experiment ``<name>-rates`` with the metrics ``lr``, the rate taken, and its
        ``val_loss``. Its rows are the rates that were tried, with the loss of each seed.
    """
    start = time.perf_counter()
    best, losses = best_rate(study, rates=rates, seeds=seeds)
    mean = {lr: sum(each) / seeds for lr, each in losses.items()}
    record = record_of(
        study,
        {"lr": best, "val_loss": mean[best]},
        time.perf_counter() - start,
        experiment=f"{study.experiment}-rates",
        recipe={**choosing(study).recorded(), "lr": "swept"},
    )
    rows = [
        {"lr": lr, "val_loss": mean[lr]}
        | {f"val_loss_s{study.seed + number}": one for number, one in enumerate(each)}
        for lr, each in losses.items()
    ]
    results.save(record, rows=rows)
    return record
