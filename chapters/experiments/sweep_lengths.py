"""What a sweep of whole runs changes where rates were chosen by runs of half the length.

Of each such experiment, the arm that leads and the one that it is compared with, at the rates that half runs
had chosen; some have others since. The log says what was asked and found.
"""

from dataclasses import replace
from functools import partial

from chapters.experiments import trained
from gkalib.experiments import Measured, Study
from gkalib.experiments.runner import SEED, Numbers, best_rate, choosing

LEADING = {
    "gka-pictures": {"vlt": 4e-3, "softmax": 4e-3},
    "gka-stories": {"no-value-embeddings": 8e-3, "baseline": 8e-3},
    "gpa-novels": {"both-fast": 4e-3, "rope": 4e-3},
    "karat-pictures": {"damped": 1e-3, "softmax": 2e-3},
    "one-budget-images": {"karat": 2e-3, "softmax": 4e-3},
    "rbf-stories": {"rbf-susie": 16e-3, "dot-rope": 8e-3},
}
STUDIES = {
    f"{name}-{study.arm}": replace(study, lr=rates[study.arm])
    for name, rates in LEADING.items()
    for study in trained(name).studies()
    if study.arm in rates
}


def swept(study: Study, seed: int) -> Numbers:
    """The best rate of whole runs and the one in use, each with its loss on the part that sweeps compare."""
    rates = (study.lr / 2, study.lr, 2 * study.lr)
    best, losses = best_rate(replace(study, seed=SEED + seed), rates=rates)
    (loss,), (in_use,) = losses[best], losses[study.lr]
    found = {"lr": best, "val_loss": loss, "lr_in_use": study.lr, "val_loss_in_use": in_use}
    return found, [{"lr": lr, "val_loss": loss} for lr, (loss,) in losses.items()]


MEASURED = Measured(
    name="sweep-lengths",
    arms={arm: partial(swept, study) for arm, study in STUDIES.items()},
    recipe=lambda arm: choosing(STUDIES[arm]).recorded(),
    threads=1,
)

EXPERIMENTS = {MEASURED.name: MEASURED}
