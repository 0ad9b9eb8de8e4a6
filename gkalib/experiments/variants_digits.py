"""Every variant in a small vision transformer on handwritten digits: does each learn at all?"""

from gkalib.experiments.options import SMALL
from gkalib.experiments.study import Study
from gkalib.layers import variants


def studies() -> list[Study]:
    """One arm a variant."""
    return [
        Study(
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
