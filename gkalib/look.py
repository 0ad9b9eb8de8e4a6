"""What a trained run looks like inside: the figures of one picture or text, and a record of the numbers."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from gkalib import results
from gkalib.evaluation.mode import evaluating
from gkalib.models import GPT, ViT
from gkalib.training import trajectory
from gkalib.training.checkpoint import NAME, Loaded
from gkalib.training.distributed import World
from gkalib.training.record import NAMES, device
from gkalib.training.run import LanguageRun, VisionRun
from gkalib.viz import bandwidths, magnitudes, maps, portrait, sheets, style
from gkalib.viz.census import agreements, census, residuals
from gkalib.viz.layers import Layer, layers
from gkalib.viz.rows import banks_of, picture_rows, text_rows

EXPERIMENT = "looking"  # what records of looks belong to, with the study of that name
PICTURES = ("astronaut", "camera", "cat", "coffee")  # of scikit-image, in its package
SIDE = 224  # pixels of the picture below a map, as in the GKA paper
TEXT = (
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of "
    "foolishness, it was the epoch of belief, it was the epoch of incredulity, it was the season of Light, "
    "it was the season of Darkness"
)


@final
@dataclass(frozen=True)
class Subject:
    """What a model is looked at with.

    Args:
        inputs: of the model, a batch of one.
        name: what it is, for the record.
        picture: what maps lie over, ``[height, width, …]`` bytes; None of a text.
        tokens: what the model reads, to be written below figures; none of a picture.
    """

    inputs: Tensor
    name: str
    picture: np.ndarray | None
    tokens: tuple[str, ...]


def look(
    loaded: Loaded,
    world: World,
    *,
    folder: Path,
    subject: str | None,
    held_out: int,
    out: Path,
    keep: bool,
) -> list[str]:
    """Draw a trained run's figures into a folder and, if asked, keep its numbers; says what was written.

    Args:
        loaded: the model.
        world: one process and its device.
        folder: where its snapshots are, if there are any.
        subject: the picture, a name of ``PICTURES`` or a file; or the text. None is the cat, or ``TEXT``.
        held_out: of how many held-out pictures or rows of text the numbers are; 0 takes the subject's.
        out: a folder for the figures.
        keep: whether the record goes to ``data/results``.

    Raises:
        ValueError: if the subject cannot be read, or the held-out data is not here.
    """
    begin = time.perf_counter()
    style.use()
    model = loaded.model.to(world.device).eval()
    shown = subject_of(loaded, world, subject)
    found = layers(model, shown.inputs)
    inputs, labels = sample(loaded, world, held_out) if held_out else (shown.inputs, None)
    weights = layers(model, inputs) if held_out else found
    snapshots = [
        one.weights for one in trajectory.read(folder.parent if NAME.fullmatch(folder.name) else folder)
    ]
    loss = None if labels is None else _loss(inputs, labels)
    made = drawn(model, shown, found)
    made |= portrait.figures(model, [one.weights for one in weights], snapshots, loss)
    out.mkdir(parents=True, exist_ok=True)
    for name, figure in made.items():
        (out / f"{name}.png").write_bytes(style.png(figure, dpi=130))
    said = [f"{len(made)} figures in {out}: {', '.join(made)}"]
    if keep:
        numbers = census(model, weights)
        if isinstance(model, ViT):
            numbers |= residuals(model, inputs)
            if labels is not None:
                numbers |= agreements(model, inputs, labels, weights)
        numbers |= portrait.metrics(model, [one.weights for one in weights], snapshots)
        rows = picture_rows(model, found) if isinstance(model, ViT) else text_rows(model, found)
        record = _record(loaded, world, shown, held_out, numbers, seconds=time.perf_counter() - begin)
        said.append(f"{EXPERIMENT}/{results.save(record, rows=rows).name}")
    return said


def subject_of(loaded: Loaded, world: World, given: str | None) -> Subject:
    """The picture or the text that a model is looked at with.

    Raises:
        ValueError: if there is no such picture, or the model does not know the text's characters.
    """
    if isinstance(loaded.run, VisionRun):
        return _picture(loaded.run, world, given or "cat")
    from gkalib.data.tokenizers import tokenizer_of

    if not isinstance(loaded.model, GPT) or loaded.tokenizer_json is None:
        raise ValueError(f"look: {loaded.run.recipe} is a model of neither pictures nor text")
    tokenizer, config = tokenizer_of(loaded.tokenizer_json), loaded.model.config
    ids = tokenizer.encode(given or TEXT).tolist()[: config.context]
    if not ids:
        raise ValueError("look: a text needs at least one token")
    tokens = [f"[{number}]" for number in range(config.registers)] + [tokenizer.decode([one]) for one in ids]
    shown = tuple(token.replace("\n", "⏎").replace(" ", "␣").replace("$", r"\$") for token in tokens)
    return Subject(torch.tensor([ids], device=world.device), "text", None, shown)


def sample(loaded: Loaded, world: World, count: int) -> tuple[Tensor, Tensor]:
    """So many held-out pictures or rows of text, evenly spaced, and what is to be predicted.

    Raises:
        ValueError: if the data is not here, or has not as many.
    """
    run = loaded.run
    if isinstance(run, VisionRun):
        from gkalib.training.pictures import held_out
        from gkalib.training.vision import data_of as pictures_of

        batches = held_out(replace(run, eval_images=count), pictures_of(run, world).held_out, world)
        inputs, labels = (torch.cat(part) for part in zip(*batches, strict=True))
        return inputs.to(world.device), labels.to(world.device)
    from gkalib.training.language import data_of as text_of

    assert isinstance(run, LanguageRun)
    rows = text_of(run, world).held_out
    if count > len(rows):
        raise ValueError(f"look: {run.data} holds out {len(rows)} rows, not {count}")
    inputs, labels = rows.batch(np.arange(count) * len(rows) // count)
    return inputs.to(world.device), labels.to(world.device)


def drawn(model: nn.Module, subject: Subject, found: list[Layer]) -> dict[str, Figure]:
    """The figures of the GKA paper's section 7 for a picture, and their counterparts for a text, by name.

    Where weights have signs, maps and flows are of their absolute values; the matrices keep them.

    Args:
        model: what was looked at.
        subject: with what.
        found: what ``layers`` gave.
    """
    shares = [magnitudes(layer.weights) for layer in found]
    made: dict[str, Figure] = {}
    if isinstance(model, ViT):
        picture = subject.picture
        made["rollout"] = sheets.rollouts(picture, model, shares)
        made["evolution"] = sheets.evolution(picture, model, shares)
        for index, layer in enumerate(shares):
            made[f"class-layer{index}"] = sheets.class_maps(picture, model, layer)
            made[f"patches-layer{index}"] = sheets.patch_maps(picture, model, layer)
    else:
        made["last-rows"] = sheets.last_rows(subject.tokens, shares)
        made["sinks"] = sheets.sinks(shares)
        if banks := banks_of(model):
            made["banks"] = sheets.banks(banks, shares[0].shape[-1])
    for index, layer in enumerate(found):
        # Neighbors of a patch are anywhere in the order, those of a token beside it: these are not thinned.
        shown = layer.weights if isinstance(model, ViT) else layer.weights[..., -maps.MOST :, -maps.MOST :]
        made[f"matrices-layer{index}"] = sheets.matrices(shown)
    with suppress(ValueError):  # a variant without bandwidths has no such figure
        made["bandwidths"] = sheets.sigmas(bandwidths(model))
    return made


def _picture(run: VisionRun, world: World, given: str) -> Subject:
    """A picture as the run's evaluation reads it, and the part of it that the model sees."""
    from PIL import Image, UnidentifiedImageError

    from gkalib.training.pictures import evaluation_transform

    if given in PICTURES:
        from skimage import data

        picture = Image.fromarray(getattr(data, given)())
    else:
        try:
            picture = Image.open(given).convert("RGB")
        except (OSError, UnidentifiedImageError):
            known = ", ".join(PICTURES)
            raise ValueError(
                f"look: {given!r} is no picture. Known by name: {known}; or give a file"
            ) from None
    inputs = evaluation_transform(run)(picture)[None].to(world.device)
    side = round(min(picture.size) * run.eval_crop)
    left, top = (picture.width - side) // 2, (picture.height - side) // 2
    seen = picture.convert("L" if run.model.channels == 1 else "RGB").crop(
        (left, top, left + side, top + side)
    )
    return Subject(inputs, Path(given).name, np.asarray(seen.resize((SIDE, SIDE))), ())


def _loss(inputs: Tensor, labels: Tensor) -> Callable[[nn.Module], Tensor]:
    """The mean cross-entropy of a model on a sample, in evaluation mode."""

    def loss(model: nn.Module) -> Tensor:
        with evaluating(model):
            return nn.functional.cross_entropy(
                model(inputs).flatten(0, -2), labels.flatten(), ignore_index=-1
            )

    return loss


def _record(
    loaded: Loaded, world: World, shown: Subject, held_out: int, metrics: dict[str, Any], *, seconds: float
) -> results.Record:
    run = loaded.run
    settings = {key: value for key, value in run.stored().items() if key not in NAMES}
    return results.Record(
        experiment=EXPERIMENT,
        arm=f"{run.recipe}-{run.arm}",
        scale=run.scale,
        recipe={"subject": shown.name, "held_out": held_out, "step": loaded.step, "run": settings},
        seed=run.seed,
        device=device(world),
        wall_seconds=round(seconds, 1),
        metrics=metrics,
        **results.provenance("torch", "numpy"),
    )
