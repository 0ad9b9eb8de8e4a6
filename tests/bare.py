"""An environment in which some distributions alone can be imported, without a network, git or a compiler."""

import os
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

BARE = ("torch", "triton", "timm", "numpy", "einops", "jaxtyping", "safetensors", "rich")
BLOCK = """
import importlib.machinery, socket, sys

class Unblocked(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.split(".")[0] not in blocked:
            return super().find_spec(name, path, target)

def refuse(self, address):
    raise OSError("no network")

place = sys.meta_path.index(importlib.machinery.PathFinder)
sys.meta_path[place] = Unblocked
socket.socket.connect = refuse
"""


def closure(*installed: str) -> set[str]:
    """The distributions that are there where these are installed, by the names that pip compares."""
    needed, waiting = set(), [*installed]
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in needed:
            continue
        needed.add(name)
        try:
            stated = map(Requirement, metadata.requires(name) or [])
        except metadata.PackageNotFoundError:
            continue  # a requirement of another platform
        waiting += [
            need.name for need in stated if need.marker is None or need.marker.evaluate({"extra": ""})
        ]
    return needed


def blocked(*installed: str) -> set[str]:
    """What cannot be imported where only these distributions are installed, with what they need."""
    needed = closure(*installed) | {"gkalib"}
    return {
        module
        for module, owners in metadata.packages_distributions().items()
        if not any(canonicalize_name(owner) in needed for owner in owners)
    }


def only(folder: Path, *installed: str) -> dict[str, str]:
    """Environment variables with which Python has these distributions alone, and an empty store."""
    absent = blocked(*installed)
    assert absent > {"matplotlib", "statsmodels", "beartype", "tyro"} and not absent & {*BARE, "gkalib"}
    (folder / "sitecustomize.py").write_text(f"blocked = {absent!r}\n{BLOCK}")
    (folder / "bin").mkdir()  # no git, no compiler
    places = {"PYTHONPATH": folder, "GKALIB_RESULTS": folder / "store", "PATH": folder / "bin"}
    return {**os.environ, **{name: str(place) for name, place in places.items()}}
