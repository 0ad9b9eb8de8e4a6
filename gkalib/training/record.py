"""A run from its settings to its record, and what is asked of the model that it leaves."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from gkalib import results
from gkalib.data.registry import checksum
from gkalib.data.tokenizers import Tokenizer, tokenizer_of
from gkalib.evaluation import core
from gkalib.evaluation import evaluate as evaluate_tasks
from gkalib.models import GPT
from gkalib.results.record import NAME
from gkalib.training import checkpoint
from gkalib.training.checkpoint import ENDED, TrainedModel, models, read_state, run_folder
from gkalib.training.checkpoint import load_checkpoint as open_run
from gkalib.training.config import LanguageConfig, LaunchConfig, TrainConfig, VisionConfig
from gkalib.training.distributed import Processes, start
from gkalib.training.log import CURVE, read_curve, thinned, write_whole
from gkalib.training.loop import Fitted, NotFinite, Workload, fit
from gkalib.training.optim import TrainState

PACKAGES = ("torch", "numpy", "timm", "torchvision", "tokenizers", "triton")


def train(config: TrainConfig, launch: LaunchConfig | None = None) -> results.Record:
    """Train a model from its settings and measure it on the held-out part; a run that has ended is read.

    Under ``torchrun`` every process calls it; the record is the same in each. Of images it has ``top1``,
    ``top5`` and ``val_loss``, of text ``val_loss``, nats per token, and ``bits_per_byte``; with ``ema_``
    those of the weights' moving average; ``train_loss`` over the last tenth of the steps, how many
    ``parameters`` there are, how many ``images`` or ``tokens`` were read, and how many a second.

    One's own data may have changed since, so that a run on it is measured again.

    Args:
        config: every setting that decides the result; ``recipe("gpa-dickens").run("bank")`` is one.
        launch: where and how.

    Raises:
        ValueError: if the run cannot be made as it is set, or data is missing, or another run writes to its
            folder, or its checkpoints belong to other settings or are damaged; the message says what to do.

    Chapter 22 reads the loop.
    """
    launch = launch or LaunchConfig()
    processes, folder = start(launch.device), run_folder(config, launch)
    again = launch.fresh or launch.in_memory or config.own_data
    record, rows = None if again else ended(config, folder), None
    absent = processes.most(int(record is None))  # in some process, which may see the folder late
    if record is None or absent:
        if launch.compile:
            torch.compiler.reset()  # it compiles a layer for a handful of models, and then no more
        workload = workload_of(config, processes, workers=launch.workers)
        fitted = fit(workload, launch)
        record, rows = record_of(workload, fitted), fitted.rows
        text = json.dumps({"settings": config.recorded(), "record": json.loads(record.to_json())}, indent=1)
        if not launch.in_memory:
            processes.first(lambda: write_whole(folder / ENDED, text))
    if launch.keep:
        kept = record
        processes.first(lambda: results.save(kept, rows=thinned(rows or read_curve(folder / CURVE))))
    return record


def ended(config: TrainConfig, folder: Path) -> results.Record | None:
    """The record of a run that has ended with these settings; None of another."""
    if not (folder / ENDED).exists():
        return None
    content = json.loads((folder / ENDED).read_text(encoding="utf-8"))
    same = content["settings"] == config.recorded()
    return results.Record.from_json(json.dumps(content["record"]), str(folder / ENDED)) if same else None


def train_all(runs: Sequence[TrainConfig], launch: LaunchConfig) -> None:
    """Train runs one after another, each once, and print a line for the record of each.

    Args:
        runs: every setting of each.
        launch: where and how.

    Raises:
        ValueError: as ``train``; where the loss of a run is no number any more, after the other runs.
    """
    failed = []
    for run in runs:
        try:
            record = train(run, launch)
        except NotFinite as error:
            failed.append(f"train: {run.arm} seed {run.seed}: {str(error).removeprefix('train: ')}")
            continue
        if start(launch.device).main:
            numbers = "  ".join(f"{name} {value:.6g}" for name, value in record.metrics.items())
            print(f"{run.experiment} {record.run}  {numbers}", flush=True)
    if failed:
        raise ValueError("\n".join(failed))


def workload_of(
    config: TrainConfig,
    processes: Processes,
    *,
    workers: int | None = 0,
    trained: TrainedModel | None = None,
) -> Workload:
    """The data of a run with what is done with them; data of one's own decide some of the settings.

    Args:
        config: the settings.
        processes: of the run.
        workers: processes that load images beside each.
        trained: a model that is to be measured; it is said if what is held out has changed since.

    Raises:
        ValueError: if the data is not here, or has other classes or tokens than the model.
    """
    workload: Workload  # imported here: text needs no timm, images no tokenizers
    if isinstance(config, VisionConfig):
        from gkalib.training import vision

        workload = vision.ImageWorkload(*vision.load_data(config, processes), processes, workers=workers)
    else:
        from gkalib.training import language

        assert isinstance(config, LanguageConfig)
        workload = language.TextWorkload(*language.load_data(config, processes), processes)
    if trained and trained.fingerprint:
        here = {"classes": workload.classes, "held_out": workload.checksum(workload.data.held_out)}
        changed = checkpoint.changes(config.data, trained.fingerprint, trained.fingerprint | here)
        if changed and processes.main:
            print(f"train: {changed}", file=sys.stderr)
    if trained and config.own_data and trained.tokenizer_json != workload.tokenizer:
        raise ValueError(f"train: {config.data} gives other tokens than those that the run was trained on")
    return workload


def record_of(workload: Workload, fitted: Fitted) -> results.Record:
    """The record of a run, which every process gets, from what it was trained on and what ``fit`` gave."""
    config = workload.config
    return results.Record(
        experiment=config.experiment,
        arm=config.arm,
        scale=config.scale,
        recipe=config.recorded(),
        seed=config.seed,
        device=device_name(workload.processes),
        wall_seconds=round(fitted.seconds, 1),
        metrics=fitted.metrics,
        data_sha256=data_sha256(config),
        **results.provenance(*PACKAGES),
    )


class Measured(NamedTuple):
    """What was measured of a trained model.

    Args:
        experiment: what a record of it belongs to.
        metrics: what came out.
        how: it was asked.
        seconds: how long it took.
        lines: for a reader.
        data: the checksum of what was read.
        rows: a table beside the record.
    """

    experiment: str
    metrics: dict[str, float]
    how: dict[str, Any]
    seconds: float
    lines: list[str]
    data: str = ""
    rows: Sequence[Mapping[str, Any]] = ()


def evaluate(
    trained: TrainedModel, processes: Processes, *, whole: bool = False, training: bool = False
) -> Measured:
    """The numbers of a trained model's record, measured again: the same items in the same precision.

    They are ``val_loss`` with ``bits_per_byte`` of text or ``top1`` and ``top5`` of images, and where asked
    for ``train_bits_per_byte``.

    Args:
        trained: what ``open_run`` gave.
        processes: who shares the items.
        whole: whether to measure on everything that was held out, of which a run may read a part.
        training: whether to measure on as many rows of training text too.

    Raises:
        ValueError: if the data is not here, or has other classes or tokens than the model, or training text
            is asked for where there are images.
    """
    config, begin = trained.config, time.perf_counter()
    if training and not isinstance(config, LanguageConfig):
        raise ValueError(f"evaluate: {config.experiment} was trained on images; --training is of text")
    if whole:
        config = replace(config, **{config.measured: None})
    workload = workload_of(config, processes, trained=trained)
    model, total = trained.model.to(processes.device), len(workload.data.held_out)
    items = min(getattr(workload.config, config.measured) or total, total)
    metrics = workload.measure(model)
    shown = dict(metrics)
    if training:
        from gkalib.training.language import TextWorkload

        assert isinstance(workload, TextWorkload)
        metrics |= workload.measure_training(model)
        shown = metrics | {"gap": metrics["bits_per_byte"] - metrics["train_bits_per_byte"]}
    part = "" if items == total else f", those of its record; --whole takes all {total:,}"
    lines = [f"on {items:,} held-out {'rows' if trained.tokenizer_json else 'images'}{part}"]
    lines += [f"{name:<{max(13, *map(len, metrics))}} {value:.6g}" for name, value in shown.items()]
    return Measured("evaluated", metrics, {"items": items}, time.perf_counter() - begin, lines)


def score_tasks(
    trained: TrainedModel,
    processes: Processes,
    names: Sequence[str],
    *,
    limit: int | None = None,
    shots: int | None = None,
) -> Measured:
    """What a decoder of text reaches in CORE's tasks; the processes share the questions."""
    model, tokenizer = _decoder(trained, processes, "evaluate")
    share = processes.rank, processes.size
    scores = evaluate_tasks(
        model, tokenizer, names, limit=limit, shots=shots, share=share, total=processes.total
    )
    mean, metrics = core(scores), {}
    lines = [f"{'task':<20}  items shots accuracy  ± s.e.  guess centered  items/s"]
    for task in scores:
        numbers = {
            "accuracy": task.accuracy,
            "error": task.error,
            "centered": task.centered,
            "items": task.items,
            "shots": task.shots,
            "items_per_second": task.items / task.seconds,
        }
        metrics |= {f"{task.name.replace('-', '_')}_{name}": number for name, number in numbers.items()}
        lines.append(
            f"{task.name:<20} {task.items:>6} {task.shots:>5} {task.accuracy:>8.3f} {task.error:>7.3f} "
            f"{task.baseline:>6.3f} {task.centered:>8.3f}  {task.items / task.seconds:.1f}"
        )
    lines.append(f"mean of centered accuracies over {mean.tasks} tasks: {mean.mean:.3f} ± {mean.error:.3f}")
    metrics |= {"core": mean.mean, "core_error": mean.error, "tasks": mean.tasks}
    how = {"limit": limit, "tasks": [task.name for task in scores]}
    return Measured("core", metrics, how, sum(task.seconds for task in scores), lines)


def keep_record(trained: TrainedModel, processes: Processes, measured: Measured) -> Path:
    """Save what was measured of a trained model; the settings of its run stand under ``run``."""
    config = trained.config
    record = results.Record(
        experiment=measured.experiment,
        arm=f"{config.experiment}-{config.arm}",
        scale=config.scale,
        recipe={**measured.how, "step": trained.step, "run": config.recorded()},
        seed=config.seed,
        device=device_name(processes),
        wall_seconds=round(measured.seconds, 1),
        metrics=measured.metrics,
        data_sha256=measured.data,
        **results.provenance("torch", "numpy", "tokenizers"),
    )
    processes.first(lambda: results.save(record, rows=measured.rows))
    return results.folder() / record.experiment / record.run


def generate(
    trained: TrainedModel,
    processes: Processes,
    prompt: str,
    *,
    count: int = 200,
    temperature: float = 0.8,
    seed: int = 0,
) -> str:
    """The prompt and what a decoder writes after it; beyond its context the window slides, with a warning.

    Raises:
        ValueError: if the run is not of text, or the prompt has characters that it does not know or is longer
            than the context.
    """
    model, tokenizer = _decoder(trained, processes, "generate")
    start = [] if tokenizer.bos is None else [tokenizer.bos]
    ids = start + tokenizer.encode(prompt).tolist()
    if not ids:
        raise ValueError("generate: a model of characters needs a prompt of at least one character")
    context = model.config.context
    if len(ids) > context:
        raise ValueError(f"generate: the prompt has {len(ids)} tokens, and the model reads {context}")
    given = torch.tensor([ids], device=processes.device)
    written = model.eval().generate(given, count, temperature=temperature, seed=seed)
    return tokenizer.decode(written[0, len(start) :].tolist())


def device_name(processes: Processes) -> str:
    """What a run is computed on, for its record."""
    if processes.device.type != "cuda":
        return results.processor()
    name = torch.cuda.get_device_name(processes.device)
    return name if processes.size == 1 else f"{processes.size} x {name}"


def data_sha256(config: TrainConfig) -> str:
    """The checksum of a run's data, for its record: the registry's; empty for data of one's own."""
    return "" if config.own_data else checksum(config.data)


def load(name_or_folder: str | Path) -> nn.Module:
    """A trained model in evaluation mode: of a run's folder, of a checkpoint, or by its name in data/models.

    Raises:
        ValueError: if there is no such model, or it is damaged.
    """
    try:
        return open_run(name_or_folder).model.eval()
    except ValueError as error:
        raise ValueError(f"load: {error}") from error


def save(run: str | Path, name: str, *, device: str | None = None) -> dict[str, float]:
    """Store a finished run's model as ``data/models/NAME``, where ``load`` and the commands find it by name.

    What is stored are the weights, their moving average where the run has one, and the tokenizer of a model
    of text. ``state.json`` has the settings of the run, its steps and seconds, the names of the classes and a
    checksum of each part of its data, the SHA-256 of each file, and the record: code, date and software, and
    what the stored weights reach on the held-out data. A model of the same name is replaced.

    Args:
        run: a run's folder.
        name: words in lower case joined by hyphens.
        device: where it is measured; a GPU where there is one.

    Returns:
        What was measured, as ``python -m gkalib evaluate`` prints it.

    Raises:
        ValueError: if the run has not ended, or the name is none, or the held-out data is not here.
    """
    if not NAME.fullmatch(name):
        raise ValueError(f"save: a name is words in lower case joined by hyphens, not {name!r}")
    trained = open_run(run)
    config, step = trained.config, trained.step
    if step < config.steps:
        raise ValueError(f"save: {run} has done {step:,} of {config.steps:,} steps; let it end first")
    seconds = read_state(checkpoint.newest(Path(run)) or Path(run))["seconds"]
    if config.ema is not None:
        trained = open_run(run, averaged=True)
    processes = start(device)
    measured = evaluate(trained, processes)
    record = {
        "metrics": measured.metrics,
        **measured.how,
        "averaged": config.ema is not None,
        "device": device_name(processes),
        "data_sha256": data_sha256(config),
        **results.provenance(*PACKAGES),
    }
    kept = trained.tokenizer_json, trained.fingerprint
    state = TrainState(config, trained.model, [], None, None, *kept)
    checkpoint.write(models() / name, state, step=step, seconds=seconds, record=record)
    return measured.metrics


def _decoder(trained: TrainedModel, processes: Processes, command: str) -> tuple[GPT, Tokenizer]:
    if not isinstance(trained.model, GPT) or trained.tokenizer_json is None:
        raise ValueError(f"{command}: {trained.config.experiment} is no model of text, which this needs")
    return trained.model.to(processes.device), tokenizer_of(trained.tokenizer_json)
