"""Every causal variant on stories for the same windows and steps, each at the learning rate that suits it.

Arms share windows, held-out windows and, where shapes match, initial weights.
"""

from gkalib.experiments.options import arms_of
from gkalib.experiments.study import Study
from gkalib.layers import attention, variants

RATES = {
    "gka": 64e-3,
    "gpa": 8e-3,
    "krause": 32e-3,
    "l2": 8e-3,
    "linear": 16e-3,
    "mixed": 8e-3,
    "non-local": 8e-3,
    "performer": 16e-3,
    "qk-norm": 16e-3,
    "rbf": 32e-3,
    "rpe": 32e-3,
    "softmax": 8e-3,
    "vlt": 16e-3,
}


def studies() -> list[Study]:
    """One arm a causal variant."""
    return arms_of(
        [name for name in variants() if getattr(attention(name), "causal", True)],
        learning_rates=RATES,
        experiment="one-budget-text",
        task="tinystories",
        data={"context": 128, "windows": 512},
        steps=1000,
        warmup=50,
        batch=8,
        shared=True,
    )
