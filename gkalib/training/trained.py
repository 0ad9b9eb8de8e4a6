"""What a trained run is asked afterwards: its held-out part again, tasks that others use, text of its own."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from gkalib import results
from gkalib.data.tokenizers import Tokenizer, tokenizer_of
from gkalib.evaluation import TaskResult, core, evaluate
from gkalib.models import GPT
from gkalib.training.checkpoint import Loaded, load
from gkalib.training.distributed import World
from gkalib.training.record import NAMES, device
from gkalib.training.run import LanguageRun, VisionRun

EXPERIMENT = "core"  # what records of tasks belong to


def measured(loaded: Loaded, world: World, *, whole: bool = False) -> tuple[dict[str, float], int, int]:
    """The numbers of a trained model's record, measured again: the same items in the same precision.

    Args:
        loaded: what ``gkalib.training.checkpoint.load`` gave.
        world: the processes, which share the items.
        whole: whether to measure on everything that was held out, of which a run may read a part.

    Returns:
        ``val_loss`` with ``bits_per_byte`` of text or ``top1`` and ``top5`` of images; how many rows or
        images they are of; and how many were held out.

    Raises:
        ValueError: if the data is not here.
    """
    # Imported here: text needs no timm, images no tokenizers.
    run, model = loaded.run, loaded.model.to(world.device)
    if isinstance(run, VisionRun):
        from gkalib.training import pictures, vision

        run = replace(run, eval_images=None) if whole else run
        images = vision.data_of(run, world).held_out
        numbers = vision.score(run, world, model, pictures.held_out(run, images, world))
        return numbers, run.eval_images or len(images), len(images)
    from gkalib.training import language

    assert isinstance(run, LanguageRun)
    run = replace(run, eval_rows=None) if whole else run
    data = language.data_of(run, world)
    total = len(data.held_out)
    return language.measure(run, world, model, data), min(run.eval_rows or total, total), total


def tasks(
    loaded: Loaded, world: World, names: Sequence[str], *, limit: int | None = None, shots: int | None = None
) -> list[TaskResult]:
    """What a decoder of text reaches in CORE's tasks; the processes of the world share the questions.

    Raises:
        ValueError: if the run is not of text, or a task is unknown or its questions are not here.
    """
    model, tokenizer = _decoder(loaded, world)
    share = world.rank, world.size
    return evaluate(model, tokenizer, names, limit=limit, shots=shots, share=share, total=world.total)


def keep(loaded: Loaded, world: World, found: Sequence[TaskResult], *, limit: int | None) -> Path:
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
        device=device(world),
        wall_seconds=round(sum(one.seconds for one in found), 1),
        metrics={**metrics, "core": mean.mean, "core_error": mean.error, "tasks": mean.tasks},
        **results.provenance("torch", "numpy", "tokenizers"),
    )
    world.first(lambda: results.save(record))
    return results.folder() / record.experiment / record.run


def written(
    loaded: Loaded, world: World, prompt: str, *, count: int = 200, temperature: float = 0.8, seed: int = 0
) -> str:
    """The prompt and what a decoder writes after it, as much as its context holds.

    Raises:
        ValueError: if the run is not of text, or the prompt has characters that it does not know or fills the
            context.
    """
    model, tokenizer = _decoder(loaded, world)
    ids = tokenizer.encode(prompt).tolist()
    if tokenizer.bos is not None:
        ids = [tokenizer.bos, *ids]
    if not ids:
        raise ValueError("generate: a model of characters needs a prompt of at least one character")
    room = model.config.context - len(ids)
    if room < 1:
        raise ValueError(f"generate: the prompt has {len(ids)} tokens, and the model reads {len(ids) + room}")
    begun = torch.tensor([ids], device=world.device)
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


def _decoder(loaded: Loaded, world: World) -> tuple[GPT, Tokenizer]:
    if not isinstance(loaded.model, GPT) or loaded.tokenizer_json is None:
        raise ValueError(f"evaluate: {loaded.run.recipe} is no model of text, which this needs")
    return loaded.model.to(world.device), tokenizer_of(loaded.tokenizer_json)
