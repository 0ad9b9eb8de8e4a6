"""The mark of a test that reads data which a clone has not: it is skipped there, and `-m data` chooses it."""

import pytest

from gkalib.data import registry


def marks(name: str) -> list[pytest.MarkDecorator]:
    """The mark of a test that reads the data of a task or of a run; none where every clone has them."""
    entry = registry.DATASETS.get(name.removesuffix("-pieces").replace("-", "_"))
    if entry is None or not (entry.archives or entry.folder or entry.hub):
        return []
    return [pytest.mark.data(entry.name)]
