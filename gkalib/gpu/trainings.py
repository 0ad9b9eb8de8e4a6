"""The training runs that chapters wait for, as a card or a processor makes them."""

from dataclasses import replace
from typing import Any

# Recipe, arm, seconds: in the order in which chapters need them. The seconds are guesses until one has run.
TRAININGS = (
    *(("gpa-dickens", arm, 240.0) for arm in ("rope", "bank", "bank-rope")),
    *(("rbf-tinystories", arm, 90.0) for arm in ("standard", "rbf", "rbf-registers")),
    *(("gka-imagenet-tiny", arm, 240.0) for arm in ("deit", "gka")),
    *(("gpa-dickens", arm, 240.0) for arm in ("bank-unwrapped", "bank-rope-unwrapped")),
    *(("karat-cifar10", arm, 300.0) for arm in ("tiny-softmax", "tiny-g3b", "tiny-g3u")),
)
LOADERS = 3  # processes that load pictures for a run, where several run side by side

# A machine that is lent for its GPU has no network: stories of the 2 MiB sample, by the model of two cores in
# larger steps.
SAMPLED = {"rbf-tinystories": {"batch": 64, "device_batch": 64, "steps": 400}}


def trained(name: str, arm: str, *, device: str) -> None:
    """Train one arm of a recipe, reduced on ``"cuda"`` and as a smoke run on ``"cpu"``, and keep the record.

    A run that was stopped goes on from its checkpoint in the folder of runs.
    """
    from gkalib.training import LaunchConfig, train
    from gkalib.training.config import VisionConfig

    chosen, on_card = training_run(name, arm, device), device == "cuda"
    workers = LOADERS if on_card and isinstance(chosen, VisionConfig) else 0
    launch = LaunchConfig(device=device, compile=on_card, workers=workers, save_every=60.0)
    train(chosen, replace(launch, keep=True, quiet=True))


def training_run(name: str, arm: str, device: str) -> Any:
    """The run of a training job; one card takes a whole step at once, which changes a result by rounding."""
    from gkalib.training import recipe

    full = recipe(name).run(arm)
    if device == "cpu":
        return full.smoke()
    chosen = replace(full.reduced("cpu"), **SAMPLED[name]) if name in SAMPLED else full.reduced(device)
    return replace(chosen, device_batch=chosen.batch)
