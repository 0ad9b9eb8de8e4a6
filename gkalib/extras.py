"""Optional libraries: where one is not installed, the extra that brings it is named."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

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


__all__ = ["EXTRAS", "needed_by", "require"]
