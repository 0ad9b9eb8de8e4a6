"""Every causal variant in a small decoder of characters: does each learn at all?"""

from gkalib.attention import attention, variants
from gkalib.training.options import SMALL
from gkalib.training.recipe import Recipe


def recipes() -> list[Recipe]:
    """One arm a causal variant."""
    return [
        Recipe(
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
