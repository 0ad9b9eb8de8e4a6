"""Every variant in a small vision transformer on handwritten digits: does each learn at all?"""

from gkalib.attention import variants
from gkalib.studies.options import SMALL
from gkalib.studies.study import Study


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
