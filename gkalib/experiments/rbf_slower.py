"""The Gaussian with RoPE of ``rbf-stories`` at half its learning rate: the rate above its own fails.

Nothing else differs, so that each seed has its twin there. One arm and five seeds are 8 core-minutes.
"""

from dataclasses import replace

from gkalib.experiments import rbf_stories
from gkalib.experiments.study import Study

__all__ = ["measure", "studies"]

measure = rbf_stories.measure


def studies() -> list[Study]:
    """One arm under the name of its twin."""
    twin = next(study for study in rbf_stories.studies() if study.arm == "rbf-rope")
    return [replace(twin, experiment="rbf-slower", lr=twin.lr / 2)]
