"""Training: the papers' recipes, two loops, and everything that keeps a run from being lost."""

from gkalib import results
from gkalib.training.config import (
    Augment,
    LanguageConfig,
    LaunchConfig,
    Recipe,
    TrainConfig,
    VisionConfig,
)
from gkalib.training.launch import Cost, cost, launch_lines
from gkalib.training.recipes import recipe, recipes


def train(run: TrainConfig, launch: LaunchConfig | None = None) -> results.Record:
    """Train a model from its settings and measure it on the held-out part.

    Under ``torchrun`` every process calls it; the record is the same in each.

    Args:
        run: every setting that decides the result; a recipe makes it: ``recipe("gpa-dickens").run("bank")``.
        launch: where and how.

    Raises:
        ValueError: if the run cannot be made as it is set, or data is missing, or another run writes to its
            folder, or its checkpoints belong to other settings or are damaged; the message says what to do.

    Chapter 20 reads the loop of text, chapter 21 that of images.
    """
    # Imported here: text needs no timm, images no tokenizers.
    if isinstance(run, VisionConfig):
        from gkalib.training import vision

        return vision.train(run, launch or LaunchConfig())
    from gkalib.training import language

    assert isinstance(run, LanguageConfig)
    return language.train(run, launch or LaunchConfig())


__all__ = [
    "Augment",
    "Cost",
    "LanguageConfig",
    "LaunchConfig",
    "Recipe",
    "TrainConfig",
    "VisionConfig",
    "cost",
    "launch_lines",
    "recipe",
    "recipes",
    "train",
]
