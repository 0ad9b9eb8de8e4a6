"""How the loss after 500 steps depends on the learning rate, at five rates around the one in use elsewhere.

Chapters 28 and 30 read the records.

References:
    Wortsman et al., Small-scale proxies for large-scale transformer training instabilities, 2023.
"""

from dataclasses import replace

from chapters.experiments import trained
from gkalib.experiments import Study, Trained

ARMS = {"rbf-stories": ("dot-rope", "rbf-rope", "rbf-susie"), "gka-pictures": ("softmax", "gka")}
FACTORS = {"quarter": 0.25, "half": 0.5, "same": 1.0, "double": 2.0, "fourfold": 4.0}


def studies() -> list[Study]:
    """Each arm at each rate, for 500 steps with a warm-up of 25; three seeds are 0.8 core-hours."""
    return [
        replace(
            study,
            experiment="rate-sensitivity",
            arm=f"{study.arm}-{name}",
            steps=500,
            warmup=25,
            lr=study.lr * factor,
        )
        for source, arms in ARMS.items()
        for study in trained(source).studies()
        if study.arm in arms
        for name, factor in FACTORS.items()
    ]


EXPERIMENTS = {"rate-sensitivity": Trained(studies)}
