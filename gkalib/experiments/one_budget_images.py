"""Every variant on Fashion-MNIST for the same pictures and steps, each at the learning rate that suits it.

Trained on the published 60,000 pictures and tested on the published 10,000. Arms share batches, test pictures
and, where shapes match, initial weights.
"""

from gkalib.experiments.decisions import against_softmax
from gkalib.experiments.options import arms_of
from gkalib.experiments.study import Study
from gkalib.layers import variants


def studies() -> list[Study]:
    """One arm a variant."""
    return arms_of(
        variants(),
        experiment="one-budget-images",
        task="fashion-mnist",
        model={"dim": 64},
        data={"train": 60_000, "test": 10_000, "published": True},
        steps=1000,
        warmup=50,
        batch=32,
        shared=True,
    )


CONTRASTS = against_softmax(studies(), metric="accuracy", delta=0.01, unit="points")
CHECKS = ()
