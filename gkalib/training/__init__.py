"""Training: recipes as data, one loop, and the experiments that the chapters quote."""

import pkgutil
from importlib import import_module

from gkalib.training import recipes as _recipes
from gkalib.training.loop import Measure, evaluate, fit, train
from gkalib.training.recipe import Recipe
from gkalib.training.tasks import TASKS, Task, task


def experiments() -> list[str]:
    """The names of the experiments that have recipes: the files of ``training/recipes``."""
    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(_recipes.__path__))


def experiment(name: str) -> tuple[list[Recipe], Measure | None]:
    """The recipes of an experiment, one an arm, and what it measures beyond the loss.

    Raises:
        ValueError: if there is no such experiment.
    """
    if name not in experiments():
        raise ValueError(f"train: no experiment {name!r}. Known: {', '.join(experiments())}")
    module = import_module(f"{_recipes.__name__}.{name.replace('-', '_')}")
    return module.recipes(), getattr(module, "measure", None)


__all__ = [
    "TASKS",
    "Measure",
    "Recipe",
    "Task",
    "evaluate",
    "experiment",
    "experiments",
    "fit",
    "task",
    "train",
]
