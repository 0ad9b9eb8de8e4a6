"""The learning rate of an arm, chosen on seeds and held-out items that decide nothing afterward."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace

from gkalib import results
from gkalib.experiments.loop import evaluate, fit, record_of
from gkalib.experiments.study import Study
from gkalib.training.loop import NotFinite

SEED = 100  # the first seed of every sweep; those that decide are below
FACTOR = 2.0  # between neighboring rates
RATES = tuple(
    Study.lr * FACTOR**power for power in range(-1, 4)
)  # tried first: a loss may have several valleys


def sweep(study: Study, *, rates: Sequence[float] = RATES, seeds: int = 1) -> results.Record:
    """Train an arm at its full length with neighboring rates, until the best lies between two others.

    The first rates are the same whatever the study's own rate is. What is compared is the mean over seeds of
    the loss on a tenth of the training part, which these runs do not train on. A run whose loss is not finite
    is the worst. The rate below it is not taken either, since another seed may break there.

    Args:
        study: the arm, with the first of its seeds.
        rates: tried in any case; beyond them the sweep goes on in factors of two.
        seeds: how many train at each rate.

    Returns:
        A record of the experiment ``<name>-rates``, which is kept, with the metrics ``lr``, the rate taken,
        and its ``val_loss``. Its rows are the rates that were tried, with the loss of each seed.
    """
    start = time.perf_counter()
    data = study.data | {"choosing": True}
    losses: dict[float, list[float]] = {}

    def loss(lr: float, seed: int) -> float:
        try:
            found = evaluate(*fit(replace(study, seed=seed, lr=lr, data=data))[:2])["val_loss"]
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
    record = record_of(
        study,
        {"lr": best, "val_loss": loss_at(best)},
        time.perf_counter() - start,
        experiment=f"{study.experiment}-rates",
        recipe={**replace(study, data=data).recorded(), "lr": "swept"},
    )
    rows = [
        {"lr": lr, "val_loss": loss_at(lr)}
        | {f"val_loss_s{study.seed + number}": one for number, one in enumerate(losses[lr])}
        for lr in sorted(losses)
    ]
    results.save(record, rows=rows)
    return record
