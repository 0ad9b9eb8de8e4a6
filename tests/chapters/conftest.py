"""A tiny book with one executed chapter, for the tests that feed faults to the checks."""

import shutil
import sys
from pathlib import Path

import nbformat
import pytest

from gkalib.results import Record, save
from tests import records

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "book"))

SLUG = "99-example"


def record(*, arm: str = "base", loss: float = 0.25) -> Record:
    return records.record(experiment="demo", arm=arm, device="cpu", metrics={"loss": loss})


@pytest.fixture(scope="session")
def executed(tmp_path_factory) -> Path:
    """The root of a book whose only chapter was executed; do not change it."""
    from execute import execute

    root = tmp_path_factory.mktemp("book")
    (root / "chapters" / "text").mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "chapters" / "example" / f"{SLUG}.md", root / "chapters" / "text")
    save(record(), root=root / "data" / "results")
    execute(SLUG, root=root)
    return root


@pytest.fixture
def book(executed, tmp_path) -> Path:
    """A copy of the executed book, to be spoiled."""
    return Path(shutil.copytree(executed, tmp_path / "book"))


@pytest.fixture
def spoil(book):
    """Change the stored notebook by a function of it, and return its path."""

    def apply(change) -> Path:
        path = book / "chapters" / f"{SLUG}.ipynb"
        notebook = nbformat.read(path, as_version=4)
        change(notebook)
        nbformat.write(notebook, path)
        return path

    return apply
