"""What a test needs that a clone may not have: it is skipped, with what makes it run."""

import pytest

from gkalib.data import registry


def need(name: str) -> None:
    """Skip unless the data of a task or of a run is on this machine."""
    data = name.removesuffix("-pieces").replace("-", "_")
    if data in registry.DATASETS and not registry.ready(data):
        pytest.skip(f"{data} is not here: python -m gkalib data get {data}")
