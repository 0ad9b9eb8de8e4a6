"""Checkpoints: written whole or not at all, read without running anything that they contain."""

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, load_model, save_file
from torch import Tensor, nn

from gkalib import results
from gkalib.data.fetch import few, sha256_of
from gkalib.data.images import CLASSES
from gkalib.training.config import LaunchConfig, TrainConfig, config_of
from gkalib.training.optim import TrainState, weight_average

MODEL, AVERAGE, OPTIMIZER = "model.safetensors", "average.safetensors", "optimizer.pt"
TOKENIZER, STATE = "tokenizer.json", "state.json"
ENDED = "ended.json"  # in a run's folder, when it has ended: its settings and its record
FORMAT = 1
KEPT = 2  # checkpoints from which training can go on
REMEDY = (
    "Delete it to go on from the one before, train into another folder with --out, or begin anew with --fresh"
)
# Settings that data of one's own changes: those of a run whose data is no longer the same.
DERIVED = {"model.num_classes", "model.vocab_size", "prompt", "eval_images"}


def run_folder(config: TrainConfig, launch: LaunchConfig) -> Path:
    """Where a run keeps its checkpoints: ``--out``, or a folder below ``$GKALIB_RUNS`` or ``./runs``."""
    home = Path(os.environ.get("GKALIB_RUNS", "runs"))
    return Path(launch.out or home / config.experiment / f"{config.arm}-{config.scale}-s{config.seed}")


class TrainedModel(NamedTuple):
    """A trained model and what it was trained by."""

    model: nn.Module
    config: TrainConfig
    tokenizer_json: str | None
    step: int
    fingerprint: dict[str, Any] | None = None  # of its data; None in a checkpoint of before that was kept

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes by label; none of text.

        A checkpoint of before they were kept has those of its data set where that is one of CIFAR, digits or
        clothes, and else none.
        """
        known = self.fingerprint["classes"] if self.fingerprint else CLASSES.get(self.config.data, ())
        return tuple(known)


def save(folder: Path, state: TrainState, *, step: int, seconds: float, keep_every: int = 0) -> Path:
    """Write ``folder/step-00001200``; of all but the newest two the weights stay, or nothing.

    Weights go to safetensors files, each tensor once however many modules share it; the optimizers' state to
    a file of ``torch.save``; the rest to ``state.json`` with the SHA-256 of every file. All is written under
    a temporary name, brought to the disk, and renamed: a folder of that name is whole, whenever the machine
    stops.

    Args:
        folder: of the run.
        state: what is saved.
        step: how many steps are done.
        seconds: how long they took.
        keep_every: the steps between checkpoints whose weights stay for good; 0 keeps those of none.

    Raises:
        ValueError: if the disk is full or cannot be written to; nothing of the attempt is left.
    """
    target = folder / f"step-{step:08d}"
    try:
        write(target, state, step=step, seconds=seconds)
    except (OSError, RuntimeError, SafetensorError) as error:  # torch.save raises any of the first two
        clear(folder)
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        last = newest(folder)
        whole = f"That of step {step_of(last)} is whole" if last else "There is none yet"
        raise ValueError(
            f"train: the checkpoint of step {step} could not be written to {folder}: "
            f"{reason.split('I/O error: ')[-1]} ({shutil.disk_usage(folder).free / 2**20:.2f} MiB are free). "
            f"{whole}; make room, and give the same command again"
        ) from None
    for path in checkpoints(folder)[:-KEPT]:
        if keep_every and step_of(path) % keep_every == 0:
            for name in (AVERAGE, OPTIMIZER):  # the last by which it is told from a whole one
                (path / name).unlink(missing_ok=True)
        elif (path / OPTIMIZER).exists():
            _delete(path)
    return target


def write(target: Path, state: TrainState, **content: Any) -> None:
    """Write a folder of weights, of what else trains them, and of ``state.json`` with this content.

    It is written under a temporary name, brought to the disk and renamed; what had the name is replaced.
    """
    temporary = target.with_name(f".{target.name}.saving")
    if temporary.exists():
        shutil.rmtree(temporary)
    temporary.mkdir(parents=True)
    for name, module in _modules(state).items():
        save_file(tensors_of(module), temporary / name)
    if state.optimizers:
        scaler = state.scaler.state_dict() if state.scaler else None
        optimizers = [optimizer.state_dict() for optimizer in state.optimizers]
        with (temporary / OPTIMIZER).open("wb") as file:
            torch.save({"optimizers": optimizers, "scaler": scaler}, file)
    if state.tokenizer is not None:
        (temporary / TOKENIZER).write_text(state.tokenizer, encoding="utf-8")
    if state.fingerprint:
        content["data"] = state.fingerprint
    write_state(temporary, {**content, "settings": state.config.settings()})
    if target.exists():
        _delete(target)
    temporary.rename(target)
    sync(target.parent)


def restore(path: Path, state: TrainState) -> tuple[int, float]:
    """Put a checkpoint into a model, its optimizers, average and scaler, if it is whole and of this run.

    Returns:
        The steps that are done, and the seconds that they took.

    Raises:
        ValueError: if it is damaged or belongs to something else; the message says what is wrong, and what
            can be done.
    """
    try:
        stored = _fill(path, state)
        content = torch.load(path / OPTIMIZER, map_location="cpu", weights_only=True)
        for optimizer, saved in zip(state.optimizers, content["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        if state.scaler:
            state.scaler.load_state_dict(content["scaler"])
    except UnpicklingError:  # whoever wrote the file wrote its checksum
        problem = f"checkpoint {path} is refused: {OPTIMIZER} holds more than tensors and numbers"
        raise ValueError(f"train: {problem}. {REMEDY}") from None
    except ValueError as error:
        raise ValueError(f"train: {error}. {REMEDY}") from None
    return stored["step"], stored["seconds"]


def models() -> Path:
    """Where trained models are kept by name: ``data/models``, beside ``data/results``."""
    return results.folder().parent / "models"


def load_checkpoint(
    name_or_folder: str | Path, *, step: int | None = None, averaged: bool = False
) -> TrainedModel:
    """A trained model, built from the settings that are stored with it.

    Args:
        name_or_folder: a run's folder, one of its checkpoints, or the name of a model in ``data/models``.
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
            wanted = f"no folder {str(name_or_folder)!r} and no trained model of that name in {models()}"
            if why := results.missing():
                raise ValueError(f"{wanted}: {why}")
            names = sorted(state.parent.name for state in models().glob(f"[!.]*/{STATE}"))
            raise ValueError(
                f"{wanted}; training writes to runs/RECIPE/ARM-SCALE-sSEED. "
                f"Known: {', '.join(names) or 'none yet'}"
            )
    path = folder if (folder / STATE).is_file() else newest(folder, step)
    if path is None:
        raise ValueError(f"there is no checkpoint in {folder}")
    config = config_of(read_state(path)["settings"])
    if averaged and config.ema is None:
        raise ValueError(f"{path} keeps no moving average; the run has no ema")
    model = config.build()
    average = weight_average(model, config.ema) if averaged else None
    stored = _fill(path, TrainState(config, model, [], average))
    text = (path / TOKENIZER).read_text(encoding="utf-8") if TOKENIZER in stored["files"] else None
    trained = average.module if average else model
    return TrainedModel(trained, config, text, stored["step"], stored.get("data"))


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a run's folder, the oldest first."""
    return sorted((path for path in folder.glob("step-*") if path.name[5:].isdigit()), key=step_of)


def step_of(path: Path) -> int:
    """How many steps were done at a checkpoint, from its name."""
    return int(path.name.removeprefix("step-"))


def newest(folder: Path, step: int | None = None) -> Path | None:
    """The newest checkpoint of a run, or that of a step; None where there is none yet."""
    by_step = {step_of(path): path for path in checkpoints(folder)}
    if step is None:
        return by_step[max(by_step)] if by_step else None
    if step not in by_step:
        steps = ", ".join(map(str, by_step)) or "none"
        raise ValueError(f"{folder} has no checkpoint of step {step}. It has: {steps}")
    return by_step[step]


def trajectory(folder: Path, *, least: int = 1) -> list[dict[str, Tensor]]:
    """The weights at each checkpoint of a run, in order: many where ``--snapshots`` kept them.

    Args:
        folder: of the run, or of a checkpoint in it.
        least: how many make a trajectory; of fewer none is read.

    Raises:
        ValueError: if one is damaged.

    Taught in: chapter 26.
    """
    paths = checkpoints(folder.parent if folder in checkpoints(folder.parent) else folder)
    if len(paths) < least:
        return []
    for path in paths:
        _check_files(path, read_state(path), [MODEL])
    return [load_file(path / MODEL) for path in paths]


def clear(folder: Path) -> None:
    """Delete what an interrupted process left under temporary names."""
    for path in [*folder.glob(".step-*.saving"), *folder.glob(".step-*.deleting")]:
        shutil.rmtree(path)


def forget(folder: Path) -> None:
    """Delete what says that a run has ended, and all checkpoints, the newest first."""
    (folder / ENDED).unlink(missing_ok=True)
    for path in reversed(checkpoints(folder)):
        _delete(path)


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """The tensors that a module stores, each under the first of its names."""
    names = {name for name, _ in [*module.named_parameters(), *module.named_buffers()]}
    return {name: tensor.contiguous() for name, tensor in module.state_dict().items() if name in names}


def write_state(folder: Path, state: Mapping[str, Any]) -> None:
    """Write ``state.json`` beside the files of a folder, with what tells whether they are whole.

    Everything is on the disk when it returns.
    """
    paths = sorted(folder.iterdir())
    files = {path.name: {"bytes": path.stat().st_size, "sha256": sha256_of(path)} for path in paths}
    stored = {"format": FORMAT, **state, "files": files}
    text = json.dumps(stored | {"seal": _checksum(stored)}, indent=1)
    (folder / STATE).write_text(text + "\n", encoding="utf-8")
    for path in [*folder.iterdir(), folder]:
        sync(path)


def read_state(path: Path) -> dict[str, Any]:
    """What ``state.json`` of a checkpoint says."""
    try:
        stored = json.loads((path / STATE).read_bytes())
    except FileNotFoundError:
        raise ValueError(f"checkpoint {path} has no {STATE}") from None
    except ValueError:  # no JSON, or no text
        raise ValueError(f"checkpoint {path} is damaged: {STATE} is not JSON") from None
    version = stored.get("format") if isinstance(stored, dict) else None
    if version != FORMAT:
        raise ValueError(
            f"checkpoint {path} has format {version!r}, and this version of gkalib reads format {FORMAT}"
        )
    if stored.pop("seal", None) != _checksum(stored):
        raise ValueError(f"checkpoint {path} is damaged: {STATE} has changed since it was written")
    return stored


def sync(path: Path) -> None:
    """Wait until a file, or what a folder lists, is on the disk."""
    folder = path.is_dir()
    if folder and sys.platform == "win32":  # where none can be opened
        return
    handle = os.open(path, os.O_RDONLY if folder else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _modules(state: TrainState) -> dict[str, nn.Module]:
    """The modules whose tensors are stored, by the name of their file."""
    return {MODEL: state.model} | ({} if state.average is None else {AVERAGE: state.average})


def _delete(path: Path) -> None:
    """A checkpoint loses its name first, so that none that has one lacks files."""
    target = path.with_name(f".{path.name}.deleting")
    path.rename(target)
    shutil.rmtree(target)


def _fill(path: Path, state: TrainState) -> dict[str, Any]:
    """Give the model and its average what a checkpoint has of them; what its ``state.json`` says.

    Raises:
        ValueError: if not all is whole and of this run; nothing is changed then.
    """
    stored = read_state(path)
    different = differences(stored["settings"], state.config.settings())
    here = state.fingerprint if different.keys() <= DERIVED else None
    if here and (changed := changes(state.config.data, stored.get("data"), here)):
        raise ValueError(changed)
    if different:
        words = "; ".join([*different.values()][:3])
        raise ValueError(f"checkpoint {path} is of another run: {words}")
    modules = _modules(state)
    names = [*modules]
    names += [OPTIMIZER] if state.optimizers else []
    names += [TOKENIZER] if state.tokenizer is not None or TOKENIZER in stored["files"] else []
    _check_files(path, stored, names)
    if state.tokenizer is not None and (path / TOKENIZER).read_text(encoding="utf-8") != state.tokenizer:
        raise ValueError(f"checkpoint {path} was trained with another tokenizer of the same size")
    for name, module in modules.items():
        try:
            load_model(module, path / name)
        except SafetensorError as error:
            raise ValueError(f"checkpoint {path} is damaged: {name} holds no tensors ({error})") from None
        except RuntimeError as error:
            problems = "; ".join(line.strip(" .\t") for line in str(error).splitlines()[1:])
            raise ValueError(f"checkpoint {path} does not fit the model: {name}: {problems}") from None
    return stored


def _check_files(path: Path, stored: Mapping[str, Any], names: list[str]) -> None:
    """Refuse a checkpoint if some of its files are not there or not as they were written."""
    for name in names:
        if name not in stored["files"]:
            raise ValueError(f"checkpoint {path} was written without {name}")
        if not (path / name).is_file():
            alone = "" if (path / OPTIMIZER).exists() else "; --snapshots keeps the weights alone"
            raise ValueError(f"checkpoint {path} is damaged: {name} is missing{alone}")
        if sha256_of(path / name) != stored["files"][name]["sha256"]:
            raise ValueError(f"checkpoint {path} is damaged: {name} has changed since it was written")


def differences(there: Mapping[str, Any], here: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """In which settings a run that was stored differs from one here, in words by their names."""
    words = {}
    for name in dict.fromkeys([*there, *here]):
        old, new = there.get(name), here.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            words |= differences(old, new, f"{prefix}{name}.")
        elif old != new:
            values = f"was {json.dumps(old)} there and is {json.dumps(new)} here"
            words[f"{prefix}{name}"] = f"{prefix}{name} {values}"
    return words


def changes(name: str, there: Mapping[str, Any] | None, here: Mapping[str, Any]) -> str:
    """What has changed in the data since a run was trained on them, in words; nothing if nothing has.

    Args:
        name: of the data.
        there: the fingerprint that the run knows; None in a checkpoint of before that was kept.
        here: that of what is there now.

    Raises:
        ValueError: if the classes are others; the message names them.
    """
    if there is None or all(there[part] == here[part] for part in ("train", "held_out")):
        return ""
    lost = sorted({*there["classes"]} - {*here["classes"]})
    new = sorted({*here["classes"]} - {*there["classes"]})
    if lost or new:
        words = [f"it lacks {few(lost)}"] * bool(lost)
        words += [f"it has {few(new)}, which the model does not know"] * bool(new)
        raise ValueError(
            f"{name} has other classes than the run was trained on: {' and '.join(words)}; classes go "
            "by the names of their folders"
        )
    return f"{name} has changed since the run was trained on it: what it has learned may be held out now"


def _checksum(stored: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(stored, sort_keys=True).encode()).hexdigest()
