"""Positions, a bank or both on wrapped Dickens for 3,000 steps, where ``gpa-novels`` has 600."""

from gkalib.experiments import gpa_novels
from gkalib.experiments.study import Study

# those of 1,000 steps, until a sweep at this length has run
RATES = {"rope": 4e-3, "bank": 4e-3, "both": 4e-3, "both-fast": 4e-3}
measure = gpa_novels.Curve


def studies() -> list[Study]:
    """Four arms of ``gpa-novels``."""
    return gpa_novels.longer(3000, RATES)
