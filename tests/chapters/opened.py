"""Opens chapters as readers do: ``python -m tests.chapters.opened [--ways WAY ...] [SLUG ...]``, a line each.

It works in a folder of its own, on a clone of this tree. Ways whose program is not installed are left out.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import nbformat

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "book"))
from pairs import read_text, slugs  # noqa: E402

CLONED = (".gitignore", "gkalib", "data", "pyproject.toml", "README.md", "LICENSE")
EXECUTE = ("-c", "from nbclient.cli import main; main()")  # jupyter execute; the client of the other two
NBCONVERT = ("-m", "nbconvert", "--to", "notebook", "--execute", "--stdout")


class Way(NamedTuple):
    """How a chapter is opened.

    Attributes:
        program: what runs it, in Python's words.
        folder: that holds the notebook.
        library: what pip installed, the folder of ``places`` that has it; nothing where it is empty.
        start: the folder in which the reader types.
    """

    program: tuple[str, ...] = EXECUTE
    folder: str = "clone/chapters"
    library: str = ""
    start: str = "clone/chapters"


WAYS = {
    "jupyter": Way(),
    "nbconvert": Way(NBCONVERT),
    "papermill": Way(("-m", "papermill", "--no-progress-bar")),
    "papermill-root": Way(("-m", "papermill", "--no-progress-bar"), start="clone"),
    "pip-beside": Way(library="from-folder"),
    "pip-folder": Way(library="from-folder", folder="elsewhere"),
    "pip-git": Way(library="from-git", folder="elsewhere"),
    "pip-git-cloned": Way(library="from-git", folder="agreed"),
    "pip-alone": Way(library="from-index", folder="elsewhere"),
    "nothing": Way(folder="elsewhere"),
}


def places(root: Path) -> Path:
    """Lay out a clone, the library as pip installs it from three sources, and folders apart."""
    clone = root / "clone"
    for name in ("chapters", "../elsewhere", "../agreed"):
        (clone / name).mkdir(parents=True)
    for name in CLONED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, clone / name)
    for name in ("experiments", "figures", "lab"):
        shutil.copytree(ROOT / "chapters" / name, clone / "chapters" / name)
    for slug in slugs(ROOT):
        nbformat.write(read_text(ROOT, slug), clone / "chapters" / f"{slug}.ipynb")
    git = ("git", "-c", "user.name=nobody", "-c", "user.email=nobody@example.org", "-C", clone)
    for words in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "-m", "book")):
        subprocess.run([*git, *words], check=True)
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target")
    for library, source in {"from-folder": clone, "from-git": f"git+{clone.as_uri()}"}.items():
        subprocess.run([*pip, root / library, source], check=True)
    alone = Path(shutil.copytree(root / "from-git", root / "from-index"))
    next(alone.glob("*.dist-info/direct_url.json")).unlink()  # as pip leaves it
    agree = "import builtins, gkalib; builtins.input = lambda _: 'yes'; gkalib.results.find_or_clone()"
    around = {**os.environ, "PYTHONPATH": str(root / "from-git")}
    subprocess.run([sys.executable, "-P", "-c", agree], cwd=root / "agreed", env=around, check=True)
    return root


def can(way: str) -> bool:
    """Whether its program is installed."""
    program = WAYS[way].program
    return program[0] == "-c" or find_spec(program[1]) is not None


def opened(root: Path, way: str, slug: str) -> str:
    """Open a chapter: nothing where it runs to its end, else the line that fails and what the error says."""
    program, folder, library, start = WAYS[way]
    notebook = root / "clone" / "chapters" / f"{slug}.ipynb"
    if folder != "clone/chapters":
        notebook = Path(shutil.copy(notebook, root / folder))
    ours = ("PYTHONPATH", "GKALIB_RESULTS")
    around = {name: value for name, value in os.environ.items() if name not in ours}
    done = subprocess.run(
        [sys.executable, *program, notebook, *(["-"] if "papermill" in program else [])],
        cwd=root / start,
        env=around | ({"PYTHONPATH": str(root / library)} if library else {}),
        capture_output=True,
        text=True,
    )
    if not done.returncode:
        return ""
    lines = re.sub(r"\x1b\[[\d;]*m", "", done.stderr).strip().splitlines()
    failed = next((line.partition("> ")[2] for line in lines if line.startswith("-") and "> " in line), "")
    return f"{failed.strip()} : {lines[-1]}"


def main(arguments: list[str] | None = None) -> None:
    """Print a line for each way and chapter."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("slugs", nargs="*", help="chapters, all unless given")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=[*filter(can, WAYS)])
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        root = places(Path(folder).resolve())
        for slug in options.slugs or slugs(ROOT):
            for way in options.ways:
                start = time.perf_counter()
                said = opened(root, way, slug) or "runs"
                print(f"{slug} | {way} | {time.perf_counter() - start:.0f} s | {said}", flush=True)


if __name__ == "__main__":
    main()
