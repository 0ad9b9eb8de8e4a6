"""Every causal variant on stories for the same windows and steps, each at the learning rate that suits it.

Arms share windows, held-out windows and, where shapes match, initial weights.
"""

from gkalib.experiments.decisions import against_softmax
from gkalib.experiments.options import arms_of
from gkalib.experiments.study import Study
from gkalib.layers import attention, variants


def studies() -> list[Study]:
    """One arm a causal variant."""
    return arms_of(
        [name for name in variants() if getattr(attention(name), "causal", True)],
        experiment="one-budget-text",
        task="tinystories",
        data={"context": 128, "windows": 512},
        steps=1000,
        warmup=50,
        batch=8,
        shared=True,
    )


CONTRASTS = against_softmax(studies(), metric="val_loss", delta=0.02, unit="nats")
CHECKS = ()
