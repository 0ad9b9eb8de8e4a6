"""Every variant on Fashion-MNIST for the same pictures and steps, each at the learning rate that suits it.

Trained on the published 60,000 pictures and tested on the published 10,000. Arms share batches, test pictures
and, where shapes match, initial weights.
"""

from gkalib.experiments.options import SMALL, arms_of
from gkalib.experiments.study import Study
from gkalib.layers import variants

# a quarter of the 50 tokens, as Linformer takes by itself; the defaults would be all of them
FEW = {name: {"landmarks": 12} for name in ("nystrom", "skyformer")}
RATES = {
    "gka": 8e-3,
    "gpa": 8e-3,
    "karat": 2e-3,
    "krause": 8e-3,
    "l2": 8e-3,
    "linear": 16e-3,
    "linformer": 2e-3,
    "mixed": 8e-3,
    "non-local": 4e-3,
    "nystrom": 4e-3,
    "performer": 2e-3,
    "qk-norm": 4e-3,
    "rbf": 2e-3,
    "rpe": 32e-3,
    "skyformer": 4e-3,
    "softmax": 4e-3,
    "vlt": 4e-3,
}


def studies() -> list[Study]:
    """One arm a variant."""
    return arms_of(
        variants(),
        options=SMALL | FEW,
        learning_rates=RATES,
        experiment="one-budget-images",
        task="fashion-mnist",
        model={"dim": 64},
        data={"train": 60_000, "test": 10_000, "published": True},
        steps=1000,
        warmup=50,
        batch=32,
        shared=True,
    )
