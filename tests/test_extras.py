"""Optional libraries: who needs one that is not installed reads which extra brings it."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gkalib.extras import EXTRAS, moved, needed_by, require
from tests.bare import closure

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# What reads the parts of another library's objects has them from that library.
GIVEN = {
    "gkalib/models/timm.py": {"timm"},
    "gkalib/models/huggingface.py": {"transformers"},
    "gkalib/models/saved.py": {"transformers"},
}
# Imported behind gkalib.viz, which asks for matplotlib; that brings Pillow, and a notebook IPython.
DRAWN = {"matplotlib", "cycler", "PIL", "IPython"}


@pytest.mark.parametrize("library", sorted(EXTRAS))
def test_the_extra_brings_its_library(library: str):
    owners = {canonicalize_name(name) for name in metadata.packages_distributions().get(library, [])}
    if not owners:
        pytest.skip(f"{library} is not installed")
    extra = PROJECT["optional-dependencies"][EXTRAS[library]]
    assert owners & closure(*(Requirement(text).name for text in extra))


def unguarded(path: Path) -> set[str]:
    """Optional libraries that a file imports where their lack would not be explained."""
    found = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.With) and "needed_by(" in ast.unparse(node.items[0]):
            return
        if isinstance(node, ast.Try) and re.search(r"except (ImportError|ModuleNot)", ast.unparse(node)):
            return  # it does without
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return
        if isinstance(node, ast.Import):
            found.update(alias.name.split(".")[0] for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            found.add(str(node.module).split(".")[0])
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text(encoding="utf-8")))
    core = {Requirement(text).name for text in PROJECT["dependencies"]}
    always = {*sys.stdlib_module_names, *core, "gkalib", "sklearn", "scipy"}
    name = path.relative_to(ROOT).as_posix()
    return found - always - GIVEN.get(name, set()) - (DRAWN if name.startswith("gkalib/viz/") else set())


def test_every_import_of_an_optional_library_is_explained():
    files = {path.relative_to(ROOT).as_posix(): unguarded(path) for path in ROOT.glob("gkalib/**/*.py")}
    assert len(files) > 100
    assert not {name: found for name, found in files.items() if found}


def test_a_library_alone_says_what_to_install():
    """Every module is imported without the extras; then what a user calls."""
    code = f"""
import importlib, pkgutil, sys, types
for name in {sorted(EXTRAS)}:
    sys.modules[name] = None
import gkalib
for module in pkgutil.walk_packages(gkalib.__path__, "gkalib.", onerror=lambda name: None):
    if module.name == "gkalib.__main__":
        continue
    try:
        importlib.import_module(module.name)
    except ValueError as error:
        print(module.name, error)
from gkalib.cli import main
main(["train", "gka-imagenet-tiny", "--smoke", "--plan"])
main(["look", "rope-dickens"])
"""
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert lines["gkalib.viz"] == "a figure needs matplotlib: pip install 'gkalib[book]'"
    assert lines["gkalib.training.vision"] == "a run on pictures needs PIL: pip install 'gkalib[vision]'"
    assert all("pip install 'gkalib[" in line for line in lines.values())


def test_a_library_behind_an_optional_one_is_named_or_left_as_it_is():
    message = r"^a text needs tokenizers: pip install 'gkalib\[language\]'$"
    with pytest.raises(ValueError, match=message), needed_by("a text"):
        raise ModuleNotFoundError("No module named 'tokenizers.models'", name="tokenizers.models")
    with pytest.raises(ModuleNotFoundError, match="No module named 'absent'"):
        require("absent", "a test")


def test_a_module_that_moved_says_where_it_is():
    with pytest.raises(
        ImportError, match=r"gkalib\.gpu\.page is gone; in its place: chapters\.lab\.page, in a clone"
    ):
        from gkalib.gpu import page  # noqa: F401
    missing = moved("gkalib.viz", {"lags": "elsewhere"})
    with pytest.raises(AttributeError, match=r"'gkalib\.viz' has no attribute 'log'"):
        missing("log")
