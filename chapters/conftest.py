"""``pytest --nbval chapters/NN-slug.ipynb``: cells in order, compared as ``make test`` does."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def pytest_configure(config: pytest.Config):
    """Leave times out of the comparison, take this environment's Python, and let it find this library."""
    config.option.nbval_sanitize_with = str(ROOT / "tests" / "chapters" / "sanitize.cfg")
    config.option.nbval_current_env = True
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]):
    """Undo what pytest-randomly does to cells: each needs those before it."""
    items.sort(key=lambda item: (str(item.path), getattr(item, "cell_num", 0)))
