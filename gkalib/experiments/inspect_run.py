"""What a trained run looks like inside: the figures of one picture or text, and a record of the numbers."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from gkalib.analysis import (
    agreement_metrics,
    attention_metrics,
    capture_attention,
    landscape_rows,
    picture_rows,
    residual_metrics,
    spectrum_metrics,
    text_rows,
)
from gkalib.analysis.landscape import loss_on, trajectory_plane
from gkalib.analysis.removal import line_gaps, removal_gains, written
from gkalib.data.folders import read_picture
from gkalib.data.image_set import as_picture
from gkalib.data.rows import Windows
from gkalib.data.tokenizers import Characters, tokenizer_of
from gkalib.evaluation import evaluating
from gkalib.extras import require
from gkalib.models import GPT, ViT
from gkalib.training.checkpoint import TrainedModel, trajectory
from gkalib.training.config import LanguageConfig, VisionConfig
from gkalib.training.distributed import Processes
from gkalib.training.record import Measured, data_sha256, keep_record, workload_of
from gkalib.viz import figures, style
from gkalib.viz.paper import gap_figure, head_figure, of_paper

CHARACTERS, STREAMS = 50_000, 100  # that GPA's models write, and in how many streams
GPA_ROWS = 256  # held-out rows on which the removal of a head is measured
POINTS = 15  # along each axis of a landscape
EXPERIMENT = "looking"  # of the records, with the study of that name
PICTURES = ("astronaut", "camera", "cat", "coffee")  # of scikit-image, in its package
SIDE = 224  # pixels of the picture below a map, as in the GKA paper
TEXT = (
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of "
    "foolishness, it was the epoch of belief, it was the epoch of incredulity, it was the season of Light, "
    "it was the season of Darkness"
)


class Subject(NamedTuple):
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


def inspect_run(
    loaded: TrainedModel,
    processes: Processes,
    *,
    folder: Path,
    subject: str | None,
    held_out: int,
    out: Path,
    keep: bool,
    paper: str | None = None,
) -> list[str]:
    """Draw a trained run's figures into a folder and, if asked, keep its numbers; what was written, in lines.

    Args:
        loaded: the model.
        processes: one process and its device.
        folder: where its checkpoints are.
        subject: the picture, a name of ``PICTURES`` or a file; or the text. None is the cat, or ``TEXT``.
        held_out: of how many held-out pictures or rows of text the numbers are; 0 takes the subject's.
        out: a folder for the figures.
        keep: whether the record goes to ``data/results``.
        paper: whose figures alone are drawn, under its numbers: ``gka``, ``gpa``, ``rbf`` or ``karat``.

    Raises:
        ValueError: if the subject cannot be read, the held-out data is not here, or the paper has no such
            models.
    """
    begin = time.perf_counter()
    style.use()
    model = loaded.model.to(processes.device).eval()
    chosen = subject_of(loaded, processes, subject)
    captured = capture_attention(model, chosen.inputs)
    inputs, labels = sample(loaded, processes, held_out) if held_out else (chosen.inputs, None)
    measured = capture_attention(model, inputs) if held_out else captured
    weights = [layer.weights for layer in measured]
    snapshots, landscape = trajectory(folder, least=3), None  # a line has no plane
    if snapshots and labels is not None:
        plane = trajectory_plane(snapshots)
        landscape = plane, loss_on(plane, model, _loss(inputs, labels), points=POINTS)
    plots = figures.attention_figures(model, captured, picture=chosen.picture, tokens=chosen.tokens)
    plots |= figures.spectrum_figures(model, weights, landscape)
    lost: dict[str, int | float] = {}
    if paper == "gpa":
        drawn, lost = _gpa(loaded, processes, held_out or GPA_ROWS)
        plots |= drawn
    if paper:
        plots = of_paper(plots, paper)
    if not plots:
        raise ValueError(f"look: {loaded.config.experiment} has no model with figures of {paper}'s paper")
    out.mkdir(parents=True, exist_ok=True)
    for name, figure in plots.items():
        (out / f"{name}.png").write_bytes(style.png(figure, dpi=130))
    lines = [f"{len(plots)} figures in {out}: {', '.join(plots)}"]
    if keep:
        numbers = attention_metrics(model, measured)
        if isinstance(model, ViT):
            numbers |= residual_metrics(model, inputs)
            if labels is not None:
                numbers |= agreement_metrics(model, inputs, labels, measured)
        numbers |= spectrum_metrics(model, weights, snapshots) | lost
        rows = picture_rows(model, captured) if isinstance(model, ViT) else text_rows(model, captured)
        rows += landscape_rows(*landscape) if landscape else []
        how = {"subject": chosen.name, "held_out": held_out}
        seconds, data = time.perf_counter() - begin, data_sha256(loaded.config)
        measured_now = Measured(EXPERIMENT, numbers, how, seconds, lines, data, rows)
        place = keep_record(loaded, processes, measured_now)
        lines.append(f"{EXPERIMENT}/{place.name}")
    return lines


def _gpa(
    loaded: TrainedModel, processes: Processes, count: int
) -> tuple[dict[str, Any], dict[str, int | float]]:
    """The lines that a decoder of characters writes, and its heads removed: figures and numbers.

    Raises:
        ValueError: if it is none of characters, or the held-out text is not here.
    """
    tokenizer = tokenizer_of(loaded.tokenizer_json) if loaded.tokenizer_json else None
    if not isinstance(tokenizer, Characters) or not isinstance(loaded.config, LanguageConfig):
        raise ValueError(f"look: {loaded.config.experiment} does not read characters, as GPA's paper does")
    model, (inputs, labels) = loaded.model, sample(loaded, processes, count)
    rows = workload_of(loaded.config, processes, trained=loaded).data.held_out
    assert isinstance(rows, Windows)
    newline = tokenizer.encode("\n").item()
    lines = {
        "text": line_gaps(torch.tensor(rows.tokens.astype(np.int64))[None], newline),
        "written": line_gaps(written(model, inputs[:STREAMS], CHARACTERS).cpu(), newline),
    }
    numbers: dict[str, int | float] = {"written_characters": CHARACTERS}
    for name, gaps in lines.items():
        numbers[f"{name}_lines"] = len(gaps)
        if len(longer := gaps[gaps > 1]):
            numbers[f"{name}_gap"] = longer.mode().values.item()
            numbers[f"{name}_gap_mean"] = longer.double().mean().item()
    parts = list(zip(inputs.split(32), labels.split(32), strict=True))

    def loss() -> Tensor:
        sums = [nn.functional.cross_entropy(model(x).mT, y, reduction="sum") for x, y in parts]
        return torch.stack(sums).sum() / labels.numel()

    gains = removal_gains(model, loss)
    for name, table in gains.items():
        for (layer, head), gain in np.ndenumerate(table.numpy()):
            numbers[f"without_{name}_{layer}_{head}"] = float(gain)
    return {"gaps": gap_figure(lines["text"], lines["written"]), "heads": head_figure(gains)}, numbers


def subject_of(loaded: TrainedModel, processes: Processes, given: str | None) -> Subject:
    """The picture or the text that a model is looked at with.

    Raises:
        ValueError: if there is no such picture, or the model does not know the text's characters.
    """
    if isinstance(loaded.config, VisionConfig):
        return _picture(loaded.config, processes, given or "cat")
    if not isinstance(loaded.model, GPT) or loaded.tokenizer_json is None:
        raise ValueError(f"look: {loaded.config.experiment} is a model of neither pictures nor text")
    tokenizer, config = tokenizer_of(loaded.tokenizer_json), loaded.model.config
    ids = tokenizer.encode(given or TEXT).tolist()[: config.context]
    if not ids:
        raise ValueError("look: a text needs at least one token")
    tokens = [f"[{number}]" for number in range(config.registers)] + [
        tokenizer.decode([token]) for token in ids
    ]
    visible = tuple(token.replace("\n", "⏎").replace(" ", "␣").replace("$", r"\$") for token in tokens)
    return Subject(torch.tensor([ids], device=processes.device), "text", None, visible)


def sample(loaded: TrainedModel, processes: Processes, count: int) -> tuple[Tensor, Tensor]:
    """So many held-out pictures or rows of text, evenly spaced, and what is to be predicted.

    Raises:
        ValueError: if the data is not here, or has not as many.
    """
    run = loaded.config
    rows = workload_of(run, processes, trained=loaded).data.held_out
    if isinstance(run, VisionConfig):
        from gkalib.training.vision import held_out

        batches = held_out(replace(run, eval_images=count), rows, processes)
        inputs, labels = (torch.cat(part) for part in zip(*batches, strict=True))
        return inputs.to(processes.device), labels.to(processes.device)
    if count > len(rows):
        raise ValueError(f"look: {run.data} holds out {len(rows)} rows, not {count}")
    inputs, labels = rows.batch(np.arange(count) * len(rows) // count)
    return inputs.to(processes.device), labels.to(processes.device)


def _picture(run: VisionConfig, processes: Processes, given: str) -> Subject:
    """A picture as the run's evaluation reads it, and the part of it that the model sees."""
    from gkalib.training.vision import evaluation_transform

    if given in PICTURES:
        picture = as_picture(getattr(require("skimage.data", "look"), given)())
    else:
        try:
            picture = read_picture(given)
        except ValueError as failure:
            raise ValueError(
                f"look: {given!r} is no picture. Known by name: {', '.join(PICTURES)}; or give a file "
                f"({str(failure).removeprefix('data: ')})"
            ) from failure
    inputs = evaluation_transform(run)(picture)[None].to(processes.device)
    side = round(min(picture.size) * run.eval_crop)
    left, top = (picture.width - side) // 2, (picture.height - side) // 2
    crop = picture.convert("L" if run.model.channels == 1 else "RGB").crop(
        (left, top, left + side, top + side)
    )
    return Subject(inputs, Path(given).name, np.asarray(crop.resize((SIDE, SIDE))), ())


def _loss(inputs: Tensor, labels: Tensor) -> Callable[[nn.Module], Tensor]:
    """The mean cross-entropy of a model on a sample, in evaluation mode."""

    def loss(model: nn.Module) -> Tensor:
        with evaluating(model):
            return nn.functional.cross_entropy(
                model(inputs).flatten(0, -2), labels.flatten(), ignore_index=-1
            )

    return loss
