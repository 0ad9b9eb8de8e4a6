"""Finds the book's repository, whose records and models the library reads, or clones it."""

import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

PARTS = ("gkalib/results", "data/results")  # an installed package has only the first beside it


def repository() -> Path | None:
    """The repository: around this package or the working folder, a clone in it, or what pip installed."""
    here = Path.cwd()
    address, commit = _origin()
    apart = here / _name(commit) if commit else Path(url2pathname(urlsplit(address).path))
    places = (Path(__file__).resolve().parents[2], here, *here.parents, apart)
    return next((place for place in places if all((place / part).is_dir() for part in PARTS)), None)


def absent() -> str:
    """What is missing where there is no repository, and what to type."""
    address, commit = _origin()
    return (
        "records, models and the chapters' own code lie in the book's repository, "
        f"which is not around {Path.cwd()}; "
        f"type: git clone {address if commit else 'ADDRESS'}, and open the notebook in its folder chapters"
    )


def find_or_clone() -> None:
    """Put the repository on Python's path; where there is none, ask, and clone it into the working folder.

    It is cloned at the commit that pip installed the library from. Where nobody agrees, or pip noted no
    commit, a sentence says what to type, and what needs no repository goes on.
    """
    root = repository() or _clone()
    if root is not None and str(root) not in sys.path:
        sys.path.insert(0, str(root))


def _clone() -> Path | None:
    """Ask, clone and return the clone, or say why there is none."""
    address, commit = _origin()
    reason = "Not cloned"
    try:
        if commit and _agreed(f"Clone {address} into {_name(commit)}, about 20 MB? [y/n] "):
            with tempfile.TemporaryDirectory(prefix=".cloning-", dir=Path.cwd()) as holder:
                fresh = Path(holder) / _name(commit)
                _git("init", fresh)
                _git("-C", fresh, "fetch", "--depth=1", address, commit)
                _git("-C", fresh, "checkout", "--detach", "FETCH_HEAD")
                return fresh.rename(Path.cwd() / fresh.name)
    except (OSError, ValueError) as failed:  # there is no git, or the folder cannot be written
        reason = f"Not cloned ({failed})"
    print(f"{reason}: {absent()}")
    return None


def _name(commit: str) -> str:
    """The folder that a clone gets."""
    return f"gkalib-{commit[:12]}"


def _git(*words: str | Path) -> None:
    """Run git, which asks nobody for a password."""
    around = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    done = subprocess.run(["git", *map(str, words)], env=around, capture_output=True, text=True)
    if done.returncode:
        raise ValueError(done.stderr.strip().partition("\n")[0])


def _agreed(question: str) -> bool:
    """Whether the reader says yes; no where nobody can be asked."""
    try:
        return input(question).strip().lower().startswith("y")
    except (EOFError, NotImplementedError):  # no terminal; a notebook that a program runs
        return False


@cache
def _origin() -> tuple[str, str]:
    """The address and the commit that pip installed the library from; a folder has no commit."""
    try:
        noted = json.loads(distribution("gkalib").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        noted = {}
    address = "" if "archive_info" in noted else noted.get("url", "")
    return address, noted.get("vcs_info", {}).get("commit_id", "")
