"""Every causal variant in a small decoder of characters: does each learn at all?"""

from gkalib.experiments.options import arms_of
from gkalib.experiments.study import Study
from gkalib.layers import attention, variants


def studies() -> list[Study]:
    """One arm a causal variant."""
    causal = [name for name in variants() if getattr(attention(name), "causal", True)]
    return arms_of(causal, experiment="variants-text", task="state-of-the-union", steps=300, batch=16)
