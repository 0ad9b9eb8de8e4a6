"""A trained model by one name, whether a run made it here or it came with the book."""

import shutil
from pathlib import Path

from safetensors.torch import save_file
from torch import nn

from gkalib import results
from gkalib.data.registry import checksum
from gkalib.results.record import NAME
from gkalib.training import checkpoint
from gkalib.training.checkpoint import MODEL, STATE, TOKENIZER, TrainedModel, load_checkpoint, read_state
from gkalib.training.distributed import start


def models() -> Path:
    """Where trained models are kept by name: ``data/models``, beside ``data/results``."""
    return results.folder().parent / "models"


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
    of text. ``state.json`` has the settings of the run, its steps and seconds, the SHA-256 of each file, and
    the record: code, date and software, and what the stored weights reach on the held-out data. A model of
    the same name is replaced.

    Args:
        run: a run's folder.
        name: words in lower case joined by hyphens.
        device: where it is measured; a GPU where there is one.

    Returns:
        What was measured, as ``python -m gkalib evaluate`` prints it.

    Raises:
        ValueError: if the run has not ended, or the name is none, or the held-out data is not here.
    """
    from gkalib.training.record import PACKAGES, device_name, evaluate  # it imports what only measuring needs

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
    numbers, items, _ = evaluate(trained, processes)
    record = {
        "metrics": numbers,
        "items": items,
        "averaged": config.ema is not None,
        "device": device_name(processes),
        "data_sha256": checksum(config.data),
        **results.provenance(*PACKAGES),
    }
    target = models() / name
    temporary = target.with_name(f".{name}.saving")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    save_file(checkpoint.tensors_of(trained.model), temporary / MODEL)
    if trained.tokenizer_json is not None:
        (temporary / TOKENIZER).write_text(trained.tokenizer_json, encoding="utf-8")
    content = {"step": step, "seconds": seconds, "settings": config.settings(), "record": record}
    if trained.fingerprint:
        content["data"] = trained.fingerprint._asdict()
    checkpoint.write_state(temporary, content)
    shutil.rmtree(target, ignore_errors=True)
    temporary.rename(target)
    return numbers


def open_run(name_or_folder: str | Path, *, step: int | None = None, averaged: bool = False) -> TrainedModel:
    """A trained model with its settings and tokenizer, by the folder of its run or its name in data/models.

    Args:
        name_or_folder: of a run, of a checkpoint, or of a stored model.
        step: which checkpoint of a run; None is the newest.
        averaged: whether to take the moving average of the weights.

    Raises:
        ValueError: if there is no such model, it is damaged, or it has no such checkpoint or average, in
            words that fit every command.
    """
    folder = Path(name_or_folder)
    if not folder.is_dir():
        folder = models() / folder
        if not (folder / STATE).is_file():
            wanted = f"no folder {str(name_or_folder)!r} and no trained model of that name"
            if why := results.missing():
                raise ValueError(f"{wanted}: {why}")
            names = sorted(state.parent.name for state in models().glob(f"[!.]*/{STATE}"))
            raise ValueError(
                f"{wanted}; training writes to runs/RECIPE/ARM-SCALE-sSEED. "
                f"Known: {', '.join(names) or 'none yet'}"
            )
    try:
        return load_checkpoint(folder, step=step, averaged=averaged)
    except ValueError as error:
        raise ValueError(str(error).removeprefix("train: ")) from error
