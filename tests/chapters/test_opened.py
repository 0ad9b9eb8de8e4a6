"""A chapter and its first cell where readers open them: in a clone, beside an installed library, apart."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pairs import ROOT, set_up

from tests.chapters import opened

# In the place of libraries that take seconds to import.
STANDINS = {
    "matplotlib/pyplot.py": "",
    "numpy.py": "class random:\n    default_rng = int",
    "torch.py": "def manual_seed(seed): ...",
}
SHOW = """
print("\\n", Path(gkalib.__file__).parents[1], gkalib.results.repository(), sys.path[0], sep=" | ")
"""
LOAD = """
try:
    gkalib.results.load("looking")
except ValueError as error:
    print(error)
"""


def write(root: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)


def library(root: Path, noted: dict | None = None) -> Path:
    """As much of the library as the cell needs, and what pip notes of where it comes from."""
    shutil.copytree(ROOT / "gkalib" / "results", root / "gkalib" / "results")
    shutil.copy(ROOT / "gkalib" / "__init__.py", root / "gkalib")
    write(root, {"gkalib/viz/__init__.py": "class style:\n    use = int"})
    if noted is not None:
        home = "gkalib-1.dist-info"
        write(root, {f"{home}/METADATA": "Name: gkalib", f"{home}/direct_url.json": json.dumps(noted)})
    return root


def git(root: Path, *words: str) -> str:
    who = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org")
    return subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def places(tmp_path_factory) -> Path:
    """A clone, the library as pip installs it from a commit, a folder and an index, and the rest."""
    root = tmp_path_factory.mktemp("places").resolve()
    write(root / "others", STANDINS)
    clone = library(root / "clone")
    write(clone, {"data/results/README": "first", "chapters/text/README": ""})
    git(clone, "init", "--quiet")
    git(clone, "add", ".")
    git(clone, "commit", "--quiet", "-m", "first")
    commit = git(clone, "rev-parse", "HEAD").strip()
    library(root / "git", {"url": clone.as_uri(), "vcs_info": {"vcs": "git", "commit_id": commit}})
    library(root / "folder", {"url": clone.as_uri(), "dir_info": {}})
    library(root / "index")
    write(clone, {"data/results/README": "second"})
    git(clone, "commit", "--quiet", "--all", "-m", "second")
    return root


@pytest.fixture
def away(tmp_path) -> Path:
    """An empty folder, in no repository."""
    (tmp_path / "chapters").mkdir()
    return tmp_path.resolve() / "chapters"


def first_cell(places: Path, folder: Path, installed: str, answer: str | None = None, more=SHOW):
    """Run the cell in a folder, with an answer to its question or with nobody who could answer."""
    (folder / "cell.py").write_text(set_up(places) + more)
    around = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{places / 'others'}{os.pathsep}{places / installed}",
    }
    done = subprocess.run(
        [sys.executable, "-S", "-P", "cell.py"],
        cwd=folder,
        env=around,
        capture_output=True,
        text=True,
        **({"stdin": subprocess.DEVNULL} if answer is None else {"input": answer}),
    )
    (folder / "cell.py").unlink()
    said, _, shown = done.stdout.partition("\n | ")
    return said, shown.strip(), done.stderr


@pytest.mark.parametrize("folder", [".", "chapters", "chapters/text"])
@pytest.mark.parametrize("installed", ["none", "git", "folder", "index"])
def test_in_a_clone_its_own_library_comes_first_and_nobody_is_asked(places, folder, installed):
    clone = places / "clone"
    assert first_cell(places, clone / folder, installed) == ("", f"{clone} | {clone} | {clone}", "")


def test_where_there_is_none_it_is_cloned_at_the_commit_that_was_installed(places, away):
    said, shown, errors = first_cell(places, away, "git", "yes\n")
    (clone,) = away.iterdir()
    assert not errors and said.startswith(f"Clone {(places / 'clone').as_uri()} into {clone.name}, ")
    assert shown == f"{places / 'git'} | {clone} | {clone}"
    assert (clone / "data" / "results" / "README").read_text() == "first"
    # The next chapter finds it, and asks nobody.
    assert first_cell(places, away, "git") == ("", shown, "")


def test_the_folder_that_was_installed_is_found(places, away):
    clone = places / "clone"
    assert first_cell(places, away, "folder") == ("", f"{places / 'folder'} | {clone} | {clone}", "")


@pytest.mark.parametrize(("installed", "answer"), [("git", "no\n"), ("git", None), ("index", "yes\n")])
def test_who_does_not_agree_or_has_no_address_reads_what_to_type_and_goes_on(places, away, installed, answer):
    said, _, errors = first_cell(places, away, installed, answer, LOAD)
    address = (places / "clone").as_uri() if installed == "git" else "ADDRESS"
    sentence = (
        "records, models and the chapters' own code lie in the book's repository, "
        f"which is not around {away}; "
        f"type: git clone {address}, and open the notebook in its folder chapters\n"
    )
    assert said.endswith(f"Not cloned: {sentence}results: no run of 'looking': {sentence}")
    assert said.startswith("Clone ") == (installed == "git")
    assert not errors and not list(away.iterdir())


def test_a_clone_that_fails_leaves_nothing(places, away):
    noted = {"url": (away / "gone").as_uri(), "vcs_info": {"commit_id": "0" * 40}}
    said, shown, _ = first_cell(places, away, str(library(away.parent / "lost", noted)), "yes\n")
    assert "Not cloned (fatal: " in said and f"git clone {noted['url']}" in said
    assert "| None |" in shown and not list(away.iterdir())


def test_without_the_library_it_says_what_to_type(places, away):
    errors = first_cell(places, away, "none")[2]
    assert 'import gkalib  # missing? %pip install "gkalib[book,language,vision] @ git+ADDRESS"' in errors


@pytest.mark.slow
def test_a_chapter_with_records_runs_or_says_where_they_are(tmp_path):
    """All chapters, and all ways: ``python -m tests.chapters.opened``."""
    root, slug = opened.places(tmp_path.resolve()), "24-evaluation"
    assert not opened.opened(root, "jupyter", slug) and not opened.opened(root, "pip-folder", slug)
    assert "lie in the book's repository" in opened.opened(root, "pip-git", slug)  # nobody can be asked
    assert "missing? %pip install" in opened.opened(root, "nothing", slug)
