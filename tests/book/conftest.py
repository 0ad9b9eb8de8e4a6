"""The built book, and tiny throw-away books for the faults that a build must notice."""

import fcntl
import importlib.util
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "book" / "build.py"
STORE = ROOT / "data" / "results"
sys.path.insert(0, str(ROOT / "book"))

from _ext.claims import Papers  # noqa: E402
from _ext.proof import Judge  # noqa: E402


@pytest.fixture(scope="session")
def build_module() -> ModuleType:
    """The build script as a module."""
    spec = importlib.util.spec_from_file_location("book_build", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_build(*options: str, env: dict | None = None) -> subprocess.CompletedProcess:
    """Run the build script as ``make book`` does."""
    return subprocess.run([sys.executable, str(SCRIPT), *options], capture_output=True, text=True, env=env)


@pytest.fixture(scope="session")
def book(build_module) -> Path:
    """The real book's HTML: what ``make book`` left if it is current, else built now."""
    output = ROOT / "_build"
    output.mkdir(exist_ok=True)
    with (output / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the workers of one test run share the book
        mark = output / "inputs.sha256"
        if not mark.is_file() or mark.read_text().strip() != build_module.inputs_digest(ROOT):
            done = run_build()
            assert done.returncode == 0, done.stderr
    return output / "html"


@dataclass
class Tiny:
    """A book of a few pages with the real configuration."""

    root: Path

    def write(self, name: str, text: str) -> None:
        """Write a file of the book."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def page(self, text: str, front: str = "", *, name: str = "page") -> None:
        """Write the page that a test is about."""
        self.write(f"{name}.md", f"---\n{front}\n---\n\n{text}\n" if front else f"{text}\n")

    def build(self, *options: str, env: dict | None = None) -> subprocess.CompletedProcess:
        """Build it."""
        return run_build("--source", str(self.root), *options, env=env)

    def html(self, name: str = "page") -> str:
        """A built page."""
        return (self.root / "_build" / "html" / f"{name}.html").read_text(encoding="utf-8")


def tiny_book(root: Path) -> Tiny:
    """A book that builds once it has its page: a library with one function, its test, and one picture."""
    made = Tiny(root)
    made.write("_config.yml", (ROOT / "_config.yml").read_text(encoding="utf-8"))
    made.write("_toc.yml", "format: jb-book\nroot: start\nchapters:\n  - file: page\n")
    made.write("start.md", "# Start\n\nThe first page.\n")
    made.write("book/references.bib", "")
    (made.root / "book" / "_static").symlink_to(ROOT / "book" / "_static")
    made.write("gkalib/__init__.py", "from gkalib.inner import double\n")
    made.write("gkalib/inner.py", "def double(x):\n    return 2 * x\n")
    made.write("tests/test_inner.py", "def test_double():\n    assert True\n")
    made.write("picture.svg", '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>')
    return made


@pytest.fixture
def tiny(tmp_path) -> Tiny:
    """A tiny book to be spoiled."""
    return tiny_book(tmp_path / "tiny")


@pytest.fixture(scope="module")
def papers() -> Papers:
    return Papers(STORE)


@pytest.fixture(scope="module")
def of_cpu(tmp_path_factory) -> Path:
    """The store as it is without a card: the runs of two cores, which stay what they are."""
    copy = tmp_path_factory.mktemp("results")
    for run in STORE.glob("*/*/run.json"):
        if run.parent.name.endswith(("-any", "-cpu", "-2-cores-x86-64")) and run.parts[-3] != "looking":
            shutil.copytree(run.parent, copy / run.parts[-3] / run.parts[-2])
    shutil.copy(STORE / "counts" / "printed.csv", copy / "counts")
    shutil.copytree(STORE / "papers", copy / "papers")
    return copy


@pytest.fixture
def store(of_cpu, tmp_path) -> Path:
    """What is counted and what the papers print, and no run."""
    for name in ("counts", "papers"):
        shutil.copytree(of_cpu / name, tmp_path / "results" / name)
    return tmp_path / "results"


@pytest.fixture(scope="module")
def judge(of_cpu) -> Judge:
    return Judge(ROOT, Papers(of_cpu))
