"""Every variant in a small vision transformer on handwritten digits: does each learn at all?"""

from gkalib.attention import variants
from gkalib.training.options import SMALL
from gkalib.training.recipe import Recipe


def recipes() -> list[Recipe]:
    """One arm a variant."""
    return [
        Recipe(
            experiment="variants-digits",
            arm=name.replace("_", "-"),
            task="digits",
            attention=name,
            options=SMALL.get(name, {}),
            steps=300,
            batch=32,
        )
        for name in variants()
    ]
