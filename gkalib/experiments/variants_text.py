"""Every causal variant in a small decoder of characters: does each learn at all?"""

from gkalib.experiments.options import SMALL
from gkalib.experiments.study import Study
from gkalib.layers import attention, variants


def studies() -> list[Study]:
    """One arm a causal variant."""
    return [
        Study(
            experiment="variants-text",
            arm=name.replace("_", "-"),
            task="state-of-the-union",
            attention=name,
            options=SMALL.get(name, {}),
            steps=300,
            batch=16,
        )
        for name in variants()
        if getattr(attention(name), "causal", True)
    ]
