"""The papers' experiments: every file has a list ``RECIPES`` of what it can train."""

import pkgutil
from importlib import import_module

from gkalib.training.config import Recipe


def recipes() -> dict[str, Recipe]:
    """Every recipe by its name."""
    modules = [import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    return {recipe.name: recipe for module in modules for recipe in module.RECIPES}


def recipe(name: str) -> Recipe:
    """The recipe of that name.

    Raises:
        ValueError: if there is none.
    """
    by_name = recipes()
    if name not in by_name:
        raise ValueError(f"train: no recipe {name!r}. Known: {', '.join(sorted(by_name))}")
    return by_name[name]
