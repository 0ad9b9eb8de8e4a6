"""What is not here: an optional library and the extra that brings it, a module that moved and its place."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NoReturn

# What is imported -> the extra of pyproject.toml that installs it.
EXTRAS = {
    "IPython": "book",
    "PIL": "vision",
    "datasets": "hub",
    "huggingface_hub": "hub",
    "ipywidgets": "book",
    "lm_eval": "hub",
    "matplotlib": "book",
    "onnx": "models",
    "pyarrow": "hub",
    "skimage": "vision",
    "statsmodels": "book",
    "timm": "vision",
    "tokenizers": "language",
    "torchvision": "vision",
    "transformers": "models",
}


@contextmanager
def needed_by(reader: str) -> Iterator[None]:
    """Around the import of optional libraries for a reader, named as a user calls it.

    Raises:
        ValueError: if one is not installed, with the command that installs it.
    """
    try:
        yield
    except ModuleNotFoundError as missing:
        library = (missing.name or "").split(".")[0]
        if library not in EXTRAS:
            raise
        raise ValueError(f"{reader} needs {library}: pip install 'gkalib[{EXTRAS[library]}]'") from missing


def require(package: str, reader: str) -> Any:
    """Import an optional library, or a module of one, by its name; errors as ``needed_by``."""
    with needed_by(reader):
        return import_module(package)


def moved(package: str, places: Mapping[str, str]) -> Callable[[str], NoReturn]:
    """The ``__getattr__`` of a package that, for this version, says what stands in the place of a module."""

    def missing(name: str) -> NoReturn:
        if name in places:
            place = places[name]
            where = ", in a clone of the repository" if place.startswith("chapters.") else ""
            raise ImportError(f"{package}.{name} is gone; in its place: {place}{where}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return missing


__all__ = ["EXTRAS", "moved", "needed_by", "require"]
