"""Positions, a bank or both on wrapped Dickens for 1,000 steps, where ``gpa-novels`` has 600."""

from gkalib.experiments import gpa_novels
from gkalib.experiments.study import Study

# the best of a sweep at this length
RATES = {"rope": 4e-3, "bank": 4e-3, "both": 4e-3, "both-fast": 4e-3}
measure = gpa_novels.Curve


def studies() -> list[Study]:
    """Four arms of ``gpa-novels``."""
    return gpa_novels.longer(1000, RATES)
