"""Every variant in the small models of the studies: the options with which it fits, and an arm for each."""

from collections.abc import Sequence
from typing import Any

from gkalib.experiments.study import Study

SMALL = {
    "mixed": {"heads": {"gka": 3, "softmax": 1}},
}


def arms_of(names: Sequence[str], **settings: Any) -> list[Study]:
    """One arm a variant, with the settings of the study."""
    return [
        Study(arm=name.replace("_", "-"), attention=name, options=SMALL.get(name, {}), **settings)
        for name in names
    ]
