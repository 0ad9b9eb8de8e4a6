"""What is asked of a trained run: its record, its held-out part again, benchmark tasks, text."""

import os
import platform
from collections.abc import Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from gkalib import results
from gkalib.data.tokenizers import Tokenizer, tokenizer_of
from gkalib.evaluation import TaskResult, core, evaluate
from gkalib.models import GPT
from gkalib.training.checkpoint import Loaded, load
from gkalib.training.config import LanguageConfig, TrainConfig, VisionConfig
from gkalib.training.distributed import Processes

NAMES = ("kind", "recipe", "arm", "scale", "seed")  # what a record has fields of its own for
PACKAGES = ("torch", "numpy", "timm", "torchvision", "tokenizers", "triton")


def items(run: TrainConfig) -> int:
    """Images or tokens in a step."""
    return run.batch * (run.model.context if isinstance(run, LanguageConfig) else 1)


def record_of(
    run: TrainConfig, processes: Processes, metrics: dict[str, int | float], *, rate: float, seconds: float
) -> results.Record:
    """The record of a run.

    Args:
        run: its settings.
        processes: what it was computed on.
        metrics: what was measured in the end.
        rate: images or tokens per second.
        seconds: over all its lives.
    """
    settings: dict[str, Any] = run.stored()
    name = "tokens_per_second" if isinstance(run, LanguageConfig) else "images_per_second"
    return results.Record(
        experiment=run.recipe,
        arm=run.arm,
        scale=run.scale,
        recipe={key: value for key, value in settings.items() if key not in NAMES},
        seed=run.seed,
        device=device(processes),
        wall_seconds=round(seconds, 1),
        metrics={**metrics, name: rate},
        **results.provenance(*(one for one in PACKAGES if _installed(one))),
    )


def device(processes: Processes) -> str:
    """What a run is computed on, for its record."""
    if processes.device.type != "cuda":
        return f"{os.cpu_count()} cores {platform.machine()}"
    name = torch.cuda.get_device_name(processes.device)
    return name if processes.size == 1 else f"{processes.size} x {name}"


def _installed(name: str) -> bool:
    try:
        return bool(metadata.version(name))
    except metadata.PackageNotFoundError:
        return False


EXPERIMENT = "core"  # what records of tasks belong to


def measured(
    loaded: Loaded, processes: Processes, *, whole: bool = False
) -> tuple[dict[str, float], int, int]:
    """The numbers of a trained model's record, measured again: the same items in the same precision.

    Args:
        loaded: what ``gkalib.training.checkpoint.load`` gave.
        processes: the processes, which share the items.
        whole: whether to measure on everything that was held out, of which a run may read a part.

    Returns:
        ``val_loss`` with ``bits_per_byte`` of text or ``top1`` and ``top5`` of images; how many rows or
        images they are of; and how many were held out.

    Raises:
        ValueError: if the data is not here.
    """
    # Imported here: text needs no timm, images no tokenizers.
    run, model = loaded.run, loaded.model.to(processes.device)
    if isinstance(run, VisionConfig):
        from gkalib.training import pictures, vision

        run = replace(run, eval_images=None) if whole else run
        images = vision.data_of(run, processes).held_out
        numbers = vision.score(run, processes, model, pictures.held_out(run, images, processes))
        return numbers, run.eval_images or len(images), len(images)
    from gkalib.training import language

    assert isinstance(run, LanguageConfig)
    run = replace(run, eval_rows=None) if whole else run
    data = language.data_of(run, processes)
    total = len(data.held_out)
    return language.measure(run, processes, model, data), min(run.eval_rows or total, total), total


def tasks(
    loaded: Loaded,
    processes: Processes,
    names: Sequence[str],
    *,
    limit: int | None = None,
    shots: int | None = None,
) -> list[TaskResult]:
    """What a decoder of text reaches in CORE's tasks; the processes share the questions.

    Raises:
        ValueError: if the run is not of text, or a task is unknown or its questions are not here.
    """
    model, tokenizer = _decoder(loaded, processes)
    share = processes.rank, processes.size
    return evaluate(model, tokenizer, names, limit=limit, shots=shots, share=share, total=processes.total)


def keep(loaded: Loaded, processes: Processes, found: Sequence[TaskResult], *, limit: int | None) -> Path:
    """Save what a model reached as the run ``core/<recipe>-<arm>-<scale>-s<seed>-<device>``."""
    metrics: dict[str, float] = {}
    for one in found:
        name = one.name.replace("-", "_")
        metrics |= {
            f"{name}_accuracy": one.accuracy,
            f"{name}_error": one.error,
            f"{name}_centered": one.centered,
            f"{name}_items": one.items,
            f"{name}_shots": one.shots,
            f"{name}_items_per_second": one.items / one.seconds,
        }
    mean = core(found)
    run = loaded.run
    settings = {key: value for key, value in run.stored().items() if key not in NAMES}
    record = results.Record(
        experiment=EXPERIMENT,
        arm=f"{run.recipe}-{run.arm}",
        scale=run.scale,
        recipe={"limit": limit, "tasks": [one.name for one in found], "step": loaded.step, "run": settings},
        seed=run.seed,
        device=device(processes),
        wall_seconds=round(sum(one.seconds for one in found), 1),
        metrics={**metrics, "core": mean.mean, "core_error": mean.error, "tasks": mean.tasks},
        **results.provenance("torch", "numpy", "tokenizers"),
    )
    processes.first(lambda: results.save(record))
    return results.folder() / record.experiment / record.run


def written(
    loaded: Loaded,
    processes: Processes,
    prompt: str,
    *,
    count: int = 200,
    temperature: float = 0.8,
    seed: int = 0,
) -> str:
    """The prompt and what a decoder writes after it, as much as its context holds.

    Raises:
        ValueError: if the run is not of text, or the prompt has characters that it does not know or fills the
            context.
    """
    model, tokenizer = _decoder(loaded, processes)
    ids = tokenizer.encode(prompt).tolist()
    if tokenizer.bos is not None:
        ids = [tokenizer.bos, *ids]
    if not ids:
        raise ValueError("generate: a model of characters needs a prompt of at least one character")
    room = model.config.context - len(ids)
    if room < 1:
        raise ValueError(f"generate: the prompt has {len(ids)} tokens, and the model reads {len(ids) + room}")
    begun = torch.tensor([ids], device=processes.device)
    made = model.eval().generate(begun, min(count, room), temperature=temperature, seed=seed)
    return tokenizer.decode(made[0].tolist())


def opened(folder: Path, *, step: int | None, averaged: bool) -> Loaded:
    """A trained model from its folder.

    Raises:
        ValueError: if there is none, with where to look.
    """
    if not folder.is_dir():
        raise ValueError(f"evaluate: no folder {folder}; training writes to runs/RECIPE/ARM-SCALE-sSEED")
    return load(folder, step=step, averaged=averaged)


def _decoder(loaded: Loaded, processes: Processes) -> tuple[GPT, Tokenizer]:
    if not isinstance(loaded.model, GPT) or loaded.tokenizer_json is None:
        raise ValueError(f"evaluate: {loaded.run.recipe} is no model of text, which this needs")
    return loaded.model.to(processes.device), tokenizer_of(loaded.tokenizer_json)
