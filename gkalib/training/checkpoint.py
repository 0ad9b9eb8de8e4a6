"""Checkpoints: written whole or not at all, read without running anything that they contain."""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch.distributed as dist
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import nn

from gkalib.training import sealed, trajectory
from gkalib.training.config import TrainConfig, run_of
from gkalib.training.held import (
    Tensors,
    Training,
    fill,
    fill_optimizers,
    gathered,
    moments,
    numbers,
    tensors_of,
    unique,
)
from gkalib.training.optim import average as averaged_model

NAME = re.compile(r"step-(\d{8,})")
KEPT = 2


class State(NamedTuple):
    """How far a checkpoint is: steps done, and the seconds that they took."""

    step: int
    seconds: float


class Loaded(NamedTuple):
    """A trained model and what it was trained by."""

    model: nn.Module
    run: TrainConfig
    tokenizer_json: str | None
    step: int


def save(folder: Path, training: Training, *, step: int, seconds: float) -> Path:
    """Write ``folder/step-00001200`` and delete all but the newest two; every process calls it.

    The tensors go to safetensors files, once each however many modules share them; the rest to
    ``state.json`` with the SHA-256 of every file. All is written under a temporary name, brought to the disk,
    and renamed: a folder of that name is whole, whenever the machine stops.

    Args:
        folder: of the run.
        training: what is saved.
        step: how many steps are done.
        seconds: how long they took.

    Raises:
        ValueError: if the disk is full or cannot be written to; nothing of the attempt is left.
    """
    main = not dist.is_initialized() or dist.get_rank() == 0
    whole = {name: gathered(tensors, main=main) for name, tensors in tensors_of(training).items()}
    target = folder / f"step-{step:08d}"
    if not main:
        return target
    state = {
        "step": step,
        "seconds": seconds,
        "settings": training.run.stored(),
        "scaler": training.scaler.state_dict() if training.scaler else None,
        "optimizers": numbers(training),
    }
    holder = folder / f".{target.name}.saving"
    try:
        clear(folder)
        holder.mkdir()
        for name, tensors in whole.items():
            save_file(tensors, holder / name)
        if training.tokenizer is not None:
            (holder / sealed.TOKENIZER).write_text(training.tokenizer, encoding="utf-8")
        sealed.seal(holder, state)
        if target.exists():  # another life of this run got as far; both are the same to the bit
            _delete(target)
        holder.rename(target)
        sealed.sync(folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(holder, ignore_errors=True)
        raise ValueError(_unwritten(folder, step, whole, error)) from None
    for old in checkpoints(folder)[:-KEPT]:
        _delete(old)
    return target


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a run, the oldest first."""
    found = [path for path in folder.glob("step-*") if NAME.fullmatch(path.name)]
    return sorted(found, key=step_of)


def step_of(path: Path) -> int:
    """How many steps were done at a checkpoint, from its name."""
    return int(path.name.removeprefix("step-"))


def newest(folder: Path, step: int | None = None) -> Path | None:
    """The newest checkpoint of a run, or that of a step; None where there is none yet.

    Raises:
        ValueError: if there is none of that step.
    """
    found = checkpoints(folder)
    if step is None:
        return found[-1] if found else None
    for path in found:
        if step_of(path) == step:
            return path
    known = ", ".join(str(step_of(path)) for path in found) or "none"
    raise ValueError(f"train: {folder} has no checkpoint of step {step}. It has: {known}")


def restore(path: Path, training: Training) -> State:
    """Put a checkpoint into a model, its optimizers, average and scaler; every process calls it.

    Nothing is changed before everything has been checked.

    Raises:
        ValueError: if it is damaged or belongs to something else; the message says what is wrong, and how to
            go on from the newest whole checkpoint before it.
    """
    try:
        state, files = _checked(path, training)
    except ValueError as error:
        raise ValueError(f"{error}. {_otherwise(path, training)}") from None
    held = tensors_of(training)
    for name, tensors in held.items():
        if name != sealed.OPTIMIZER:
            fill(tensors, files[name])
    fill_optimizers(training, files[sealed.OPTIMIZER], state["optimizers"])
    if training.scaler:
        training.scaler.load_state_dict(state["scaler"])
    return State(state["step"], state["seconds"])


def load(folder: Path, *, step: int | None = None, averaged: bool = False) -> Loaded:
    """A trained model from a run's folder, or from one checkpoint's, built from the settings stored there.

    Args:
        folder: of a run, or of a checkpoint in it.
        step: which checkpoint; None is the newest.
        averaged: whether to take the moving average of the weights.

    Raises:
        ValueError: if there is no checkpoint, it is damaged, or it keeps no average.
    """
    folder = Path(folder)
    path = folder if NAME.fullmatch(folder.name) else newest(folder, step)
    if path is None:
        raise ValueError(f"train: there is no checkpoint in {folder}")
    run = run_of(sealed.state(path)["settings"])
    if averaged and run.ema is None:
        raise ValueError(f"train: {path} keeps no moving average; the run has no ema")
    model = run.build()
    average = averaged_model(model, run.ema) if averaged else None
    try:
        state, files = _checked(path, Training(run, model, [], average))
    except ValueError as error:
        others = [str(step_of(one)) for one in checkpoints(path.parent) if one != path]
        raise ValueError(f"{error}. Others of this run: --step {' or '.join(others) or 'none'}") from None
    if average is not None:
        fill(unique(average), files[sealed.AVERAGE])
        model = average.module
    else:
        fill(unique(model), files[sealed.MODEL])
    text = None
    if sealed.TOKENIZER in state["files"]:
        sealed.whole(path, state, [sealed.TOKENIZER])
        text = (path / sealed.TOKENIZER).read_text(encoding="utf-8")
    return Loaded(model, run, text, state["step"])


def clear(folder: Path) -> None:
    """Delete what an interrupted process left under temporary names."""
    for pattern in (".step-*.saving", ".step-*.deleting"):
        for path in folder.glob(pattern):
            shutil.rmtree(path)
    trajectory.clear(folder)


def forget(folder: Path, *, after: int = -1) -> None:
    """Delete the checkpoints and snapshots after a step, all where none is given, the newest first."""
    for path in reversed(checkpoints(folder)):
        if step_of(path) > after:
            _delete(path)
    trajectory.forget(folder, after=after)


def _delete(path: Path) -> None:
    """A checkpoint loses its name first, so that none that has one lacks files."""
    gone = path.with_name(f".{path.name}.deleting")
    path.rename(gone)
    shutil.rmtree(gone)


def _checked(path: Path, training: Training) -> tuple[dict[str, Any], dict[str, Tensors]]:
    """A checkpoint's state and tensors, if it is whole and of this training."""
    state = sealed.state(path)
    differ = sealed.differences(state["settings"], training.run.stored())
    if differ:
        raise ValueError(f"train: checkpoint {path} is of another run: {'; '.join(differ[:3])}")
    held = tensors_of(training)
    if not training.optimizers:
        del held[sealed.OPTIMIZER]
    text = [sealed.TOKENIZER] if training.tokenizer is not None else []
    sealed.whole(path, state, [*held, *text])
    if text and (path / sealed.TOKENIZER).read_text(encoding="utf-8") != training.tokenizer:
        raise ValueError(f"train: checkpoint {path} was trained with another tokenizer of the same size")
    files = {name: sealed.tensors(path, name) for name in held}
    for name in held:
        wanted = held[name] if name != sealed.OPTIMIZER else moments(files[name], training)
        problem = _mismatch(files[name], wanted)
        if problem:
            raise ValueError(f"train: checkpoint {path} does not fit the model: {name} {problem}")
    return state, files


def _mismatch(stored: Tensors, wanted: Tensors) -> str | None:
    """The first tensor that is not as it must be, in words."""
    for name in sorted(wanted.keys() - stored.keys()):
        return f"lacks {name}"
    for name in sorted(stored.keys() - wanted.keys()):
        return f"has {name}, which the model has not"
    for name, tensor in wanted.items():
        if stored[name].shape != tensor.shape:
            return f"has {name} of shape {list(stored[name].shape)}, and the model {list(tensor.shape)}"
        if stored[name].dtype != tensor.dtype:
            return f"has {name} in {stored[name].dtype}, and the model in {tensor.dtype}"
    return None


def _otherwise(path: Path, training: Training) -> str:
    """What to do where a checkpoint cannot be used."""
    for earlier in reversed(checkpoints(path.parent)):
        if step_of(earlier) < step_of(path):
            try:
                _checked(earlier, training)
            except ValueError:
                continue
            step = step_of(earlier)
            return f"The one of step {step} is whole and fits: --from-step {step} goes on from there"
    return "No earlier one fits: train into another folder with --out, or begin anew with --fresh"


def _unwritten(folder: Path, step: int, gathered: Mapping[str, Tensors], error: Exception) -> str:
    needed = sum(one.nbytes for tensors in gathered.values() for one in tensors.values())
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error).split("I/O error: ")[-1]
    last = newest(folder)
    kept = f"That of step {step_of(last)} is whole" if last else "There is none yet"
    return (
        f"train: the checkpoint of step {step} could not be written to {folder}: {reason} (it needs "
        f"{needed / 2**20:.2f} MiB, and {shutil.disk_usage(folder).free / 2**20:.2f} MiB are free). "
        f"{kept}; make room, and give the same command again"
    )
