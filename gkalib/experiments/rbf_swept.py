"""The Gaussian with RoPE of ``rbf-stories`` at the best rate of a sweep as long as its runs.

Nothing else differs, so that each seed has its twin there. One arm and five seeds are 8 core-minutes.
"""

from dataclasses import replace

from gkalib.experiments import rbf_stories
from gkalib.experiments.study import Study

__all__ = ["measure", "studies"]

measure = rbf_stories.measure
RATE = 8e-3  # three seeds at 0.004 to 0.064


def studies() -> list[Study]:
    """One arm under the name of its twin."""
    twin = next(study for study in rbf_stories.studies() if study.arm == "rbf-rope")
    return [replace(twin, experiment="rbf-swept", lr=RATE)]
