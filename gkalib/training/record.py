"""From a finished run to its record."""

import os
import platform
from importlib import metadata
from typing import Any

import torch

from gkalib import results
from gkalib.training.distributed import World
from gkalib.training.run import LanguageRun, Run

NAMES = ("kind", "recipe", "arm", "scale", "seed")  # what a record has fields of its own for
PACKAGES = ("torch", "numpy", "timm", "torchvision", "tokenizers", "triton")


def items(run: Run) -> int:
    """Images or tokens in a step."""
    return run.batch * (run.model.context if isinstance(run, LanguageRun) else 1)


def record_of(
    run: Run, world: World, metrics: dict[str, int | float], *, rate: float, seconds: float
) -> results.Record:
    """The record of a run.

    Args:
        run: its settings.
        world: what it was computed on.
        metrics: what was measured in the end.
        rate: images or tokens per second.
        seconds: over all its lives.
    """
    settings: dict[str, Any] = run.stored()
    name = "tokens_per_second" if isinstance(run, LanguageRun) else "images_per_second"
    return results.Record(
        experiment=run.recipe,
        arm=run.arm,
        scale=run.scale,
        recipe={key: value for key, value in settings.items() if key not in NAMES},
        seed=run.seed,
        device=device(world),
        wall_seconds=round(seconds, 1),
        metrics={**metrics, name: rate},
        **results.provenance(*(one for one in PACKAGES if _installed(one))),
    )


def device(world: World) -> str:
    """What a run is computed on, for its record."""
    if world.device.type != "cuda":
        return f"{os.cpu_count()} cores {platform.machine()}"
    name = torch.cuda.get_device_name(world.device)
    return name if world.size == 1 else f"{world.size} x {name}"


def _installed(name: str) -> bool:
    try:
        return bool(metadata.version(name))
    except metadata.PackageNotFoundError:
        return False
