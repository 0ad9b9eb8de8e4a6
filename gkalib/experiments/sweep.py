"""The learning rate of an arm, chosen on a seed that is not used again, before the seeds that decide."""

import math
import time
from dataclasses import replace

from gkalib import results
from gkalib.data.registry import checksum
from gkalib.experiments.loop import evaluate, fit
from gkalib.experiments.study import Study
from gkalib.training.loop import NotFinite

SEED = 100  # none of the seeds that decide
START = Study.lr  # of every sweep, whatever rate a study was given since: a second sweep tries the same rates
FACTOR = 2.0  # between neighboring rates
FIRST = range(-1, 4)  # the powers of it that are tried in any case: a loss may have several valleys


def sweep(study: Study) -> results.Record:
    """Train an arm at half its steps with neighboring rates, until the best lies between two others.

    The first five are half of ``START`` to eight times it, whatever the study's own rate is. What is compared
    is the held-out loss at the study's seed. A run whose loss is not finite is the worst. The rate below it
    is not taken either, since another seed may break there.

    Returns:
        A record of the experiment ``<name>-rates``, which is kept, with the metrics ``lr``, the rate taken,
        and its ``val_loss``. Its rows are the rates that were tried.
    """
    start, losses = time.perf_counter(), {}

    def loss_at(power: int) -> float:
        if power not in losses:
            chosen = replace(study, steps=study.steps // 2, lr=START * FACTOR**power)
            try:
                loss = evaluate(*fit(chosen)[:2])["val_loss"]
            except NotFinite:
                loss = math.inf
            losses[power] = loss if math.isfinite(loss) else math.inf
        return losses[power]

    best = min(FIRST, key=loss_at)
    while (better := min((best, best - 1, best + 1), key=loss_at)) != best:
        best = better
    if math.isinf(loss_at(best + 1)):
        best -= 1
        loss_at(best - 1)  # it lies between two others as well
    record = results.Record(
        experiment=f"{study.experiment}-rates",
        arm=study.arm,
        scale=study.scale,
        recipe={**study.recorded(), "steps": study.steps // 2, "lr": "swept"},
        seed=study.seed,
        device=results.processor(),
        wall_seconds=round(time.perf_counter() - start, 1),
        metrics={"lr": START * FACTOR**best, "val_loss": losses[best]},
        data_sha256=checksum(study.task),
        **results.provenance("torch", "numpy"),
    )
    results.save(
        record,
        rows=[{"lr": START * FACTOR**power, "val_loss": losses[power]} for power in sorted(losses)],
    )
    return record
