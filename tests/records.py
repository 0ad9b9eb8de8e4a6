"""A record of a run that nobody made, for tests of what reads records."""

from typing import Any

from gkalib.results import Record


def record(**changes: Any) -> Record:
    """A valid record, changed where a test needs it."""
    fields = {
        "experiment": "toy",
        "arm": "gaussian",
        "scale": "smoke",
        "recipe": {"sigma": 0.5, "steps": 3},
        "seed": 0,
        "device": "CPU",
        "commit": "0123456789ab",
        "clean": True,
        "date": "2026-01-02T03:04:05+00:00",
        "versions": {"numpy": "2.3.5"},
        "wall_seconds": 1.5,
        "metrics": {"loss": 0.25},
    }
    return Record(**fields | changes)
