"""Every variant in a small vision transformer on handwritten digits: does each learn at all?"""

from gkalib.experiments.options import arms_of
from gkalib.experiments.study import Study
from gkalib.layers import variants


def studies() -> list[Study]:
    """One arm a variant."""
    return arms_of(variants(), experiment="variants-digits", task="digits", steps=300, batch=32)
