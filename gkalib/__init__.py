"""Attention as kernel regression: one smoother, its kernels, and the modules built from it."""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

# Public name -> the module that defines it. Names load on first use, so `import gkalib` is fast and a
# part whose optional libraries are missing fails only when it is asked for.
_PUBLIC = {
    "kernels": "gkalib.kernels",
    "masks": "gkalib.masks",
    "normalizers": "gkalib.normalizers",
    "results": "gkalib.results",
    "data": "gkalib.data",
    "analysis": "gkalib.analysis",
    "viz": "gkalib.viz",
    "smooth": "gkalib.smoothing",
    "attention_weights": "gkalib.smoothing",
    "explain": "gkalib.smoothing",
    "NadarayaWatson": "gkalib.regression",
    "LocalLinear": "gkalib.regression",
    "attention": "gkalib.layers",
    "vit": "gkalib.models",
    "gpt": "gkalib.models",
    "count": "gkalib.models",
    "replace_attention": "gkalib.models",
    "capture_attention": "gkalib.analysis",
    "load": "gkalib.training",
    "save": "gkalib.training",
    "train": "gkalib.training",
}

if TYPE_CHECKING:
    from gkalib import analysis, data, kernels, masks, normalizers, results, viz
    from gkalib.analysis import capture_attention
    from gkalib.layers import attention
    from gkalib.models import count, gpt, replace_attention, vit
    from gkalib.regression import LocalLinear, NadarayaWatson
    from gkalib.smoothing import attention_weights, explain, smooth
    from gkalib.training import load, save, train

__all__ = [
    "LocalLinear",
    "NadarayaWatson",
    "__version__",
    "analysis",
    "attention",
    "attention_weights",
    "capture_attention",
    "count",
    "data",
    "explain",
    "gpt",
    "kernels",
    "load",
    "masks",
    "normalizers",
    "replace_attention",
    "results",
    "save",
    "smooth",
    "train",
    "vit",
    "viz",
]


def __getattr__(name: str):
    """Import a public name when it is first used."""
    if name not in _PUBLIC:
        raise AttributeError(
            f"module 'gkalib' has no attribute {name!r}. Known: {', '.join(sorted(_PUBLIC))}"
        )
    module = import_module(_PUBLIC[name])
    value = module if module.__name__.endswith("." + name) else getattr(module, name)
    globals()[name] = value  # found without this function from now on: it costs more than a small problem
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
