"""Training: the papers' recipes, one loop, and everything that keeps a run from being lost."""

from gkalib.extras import moved
from gkalib.training.background import Launch, launch
from gkalib.training.config import (
    Augment,
    LanguageConfig,
    LaunchConfig,
    Recipe,
    TrainConfig,
    VisionConfig,
)
from gkalib.training.launch import Cost, cost, launch_lines, plan
from gkalib.training.recipes import recipe, recipes
from gkalib.training.record import load, save, train

__getattr__ = moved(__name__, {"forgetting": "chapters.figures.language_models"})

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
    "launch_lines",
    "load",
    "plan",
    "recipe",
    "recipes",
    "save",
    "train",
]
