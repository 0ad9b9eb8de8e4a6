"""Does the highest crest among a model's banks move with the width of the lines? ``gpa-bump`` on new seeds.

Its mean over heads cannot say, since all but one or two of eight heads have no crest, and the lag at which
one without a crest is highest is arbitrary. A run takes 9 minutes of one core: ten seeds are 3 core-hours.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gkalib.experiments import gpa_bump
from gkalib.experiments.study import Study

ARMS = ("flat-50", "flat-70")


def studies() -> list[Study]:
    """The two arms of ``gpa-bump`` that start flat and whose text has lines."""
    return [
        replace(study, experiment="gpa-bump-highest") for study in gpa_bump.studies() if study.arm in ARMS
    ]


def measure(model: Any, learned: Any) -> dict[str, int | float]:
    """What ``gpa-bump`` measures, and the crest and the height of the head whose crest is highest."""
    found = gpa_bump.measure(model, learned)
    return found | highest(found)


def highest(found: Mapping[str, int | float]) -> dict[str, int | float]:
    """The crest and the height of the head with the greatest height."""
    heads = {int(name[12:]) for name in found if name.startswith("height_head_")}
    head = max(heads, key=lambda one: found[f"height_head_{one}"])
    return {
        "highest_crest": found[f"crest_head_{head}"],
        "highest_height": found[f"height_head_{head}"],
    }
