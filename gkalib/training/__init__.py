"""Training: the papers' recipes, one loop, and everything that keeps a run from being lost."""

from gkalib import results
from gkalib.extras import moved
from gkalib.training.config import (
    Augment,
    LanguageConfig,
    LaunchConfig,
    Recipe,
    TrainConfig,
    VisionConfig,
)
from gkalib.training.launch import Cost, Launch, cost, launch
from gkalib.training.recipes import recipe, recipes
from gkalib.training.record import load, record_of, save

__getattr__ = moved(
    __name__,
    {
        "forgetting": "chapters.figures.language_models",
        "launch_lines": "gkalib.training.launch(...).lines",
        "plan": "gkalib.training.launch(...).plan",
    },
)


def train(config: TrainConfig, launch: LaunchConfig | None = None) -> results.Record:
    """Train a model from its settings and measure it on the held-out part.

    Under ``torchrun`` every process calls it; the record is the same in each. Of images it has ``top1``,
    ``top5`` and ``val_loss``, of text ``val_loss``, nats per token, and ``bits_per_byte``; with ``ema_``
    those of the weights' moving average; ``train_loss`` over the last tenth of the steps, how many
    ``parameters`` there are, how many ``images`` or ``tokens`` were read, and how many a second.

    Args:
        config: every setting that decides the result; ``recipe("gpa-dickens").run("bank")`` is one.
        launch: where and how.

    Raises:
        ValueError: if the run cannot be made as it is set, or data is missing, or another run writes to its
            folder, or its checkpoints belong to other settings or are damaged; the message says what to do.

    Chapter 20 reads the loop.
    """
    # Imported here: text needs no timm, images no tokenizers.
    from gkalib.data.folders import check_pictures
    from gkalib.data.images import is_own_folder
    from gkalib.training.checkpoint import is_of
    from gkalib.training.distributed import run_folder, start
    from gkalib.training.loop import Workload, fit

    launch = launch or LaunchConfig()
    processes = start(launch.device)
    workload: Workload
    if isinstance(config, VisionConfig):
        from gkalib.training import vision

        config, images = vision.load_data(config, processes)
        workload = vision.ImageWorkload(config, images, processes, workers=launch.workers)
        if is_own_folder(config.data):  # and no earlier life of the run has read it
            folder, known = run_folder(config, launch), workload.fingerprint
            processes.first(lambda: is_of(folder, known) or check_pictures(images, quiet=launch.quiet))
    else:
        from gkalib.training import language

        assert isinstance(config, LanguageConfig)
        config, text = language.load_data(config, processes)
        workload = language.TextWorkload(config, text, processes)
    return record_of(config, processes, fit(workload, launch), keep=launch.keep)


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
