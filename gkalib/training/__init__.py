"""Training: the papers' recipes, one loop, and everything that keeps a run from being lost."""

from gkalib.extras import moved
from gkalib.training.config import (
    Augment,
    LanguageConfig,
    LaunchConfig,
    Recipe,
    TrainConfig,
    VisionConfig,
)
from gkalib.training.cost import Cost, cost
from gkalib.training.launch import Launch, launch
from gkalib.training.recipes import recipe, recipes
from gkalib.training.record import load, save, train

__getattr__ = moved(
    __name__,
    {
        "forgetting": "chapters.figures.language_models",
        "launch_lines": "gkalib.training.launch(...).lines",
        "plan": "gkalib.training.launch(...).plan",
    },
)

__all__ = [
    "Augment",
    "Cost",
    "LanguageConfig",
    "Launch",
    "LaunchConfig",
    "Recipe",
    "TrainConfig",
    "VisionConfig",
    "cost",
    "launch",
    "load",
    "recipe",
    "recipes",
    "save",
    "train",
]
