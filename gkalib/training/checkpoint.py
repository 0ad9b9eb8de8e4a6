"""Checkpoints: written whole or not at all, read without running anything that they contain."""

import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch.distributed as dist
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from gkalib.data.fetch import sha256_of
from gkalib.training.config import TrainConfig, config_of
from gkalib.training.differences import differences
from gkalib.training.fingerprint import Fingerprint, changes
from gkalib.training.optim import TrainState, weight_average

MODEL, AVERAGE, OPTIMIZER = "model.safetensors", "average.safetensors", "optimizer.safetensors"
TOKENIZER, STATE, SNAPSHOTS = "tokenizer.json", "state.json", "snapshots"
FORMAT = 1
NAME = re.compile(r"step-(\d{8,})(\.safetensors)?")
KEPT = 2  # checkpoints; snapshots are all kept
PICKLES = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")  # torch.save's, new and old
# Whole tensors, on the CPU of the main process; not strict, since what modules share is stored once.
WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True, strict=False)
Tensors = dict[str, Tensor]


class Progress(NamedTuple):
    """How far a checkpoint is: steps done, and the seconds that they took."""

    step: int
    seconds: float


class TrainedModel(NamedTuple):
    """A trained model and what it was trained by."""

    model: nn.Module
    config: TrainConfig
    tokenizer_json: str | None
    step: int
    fingerprint: Fingerprint | None = None  # of its data; None in a checkpoint of before that was kept

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes by label; none of text."""
        return self.fingerprint.classes if self.fingerprint else ()


def save(folder: Path, state: TrainState, *, step: int, seconds: float) -> Path:
    """Write ``folder/step-00001200`` and delete all but the newest two; every process calls it.

    The tensors go to safetensors files, once each however many modules share them; the rest to
    ``state.json`` with the SHA-256 of every file. All is written under a temporary name, brought to the disk,
    and renamed: a folder of that name is whole, whenever the machine stops.

    Args:
        folder: of the run.
        state: what is saved.
        step: how many steps are done.
        seconds: how long they took.

    Raises:
        ValueError: if the disk is full or cannot be written to; nothing of the attempt is left.
    """
    files = {name: tensors_of(module) for name, module in _modules(state).items()}
    files[OPTIMIZER] = _optimizer_tensors(state)
    target = folder / f"step-{step:08d}"
    if not is_main():
        return target
    scaler = state.scaler.state_dict() if state.scaler else None
    content = {"step": step, "seconds": seconds, "settings": state.config.settings(), "scaler": scaler}
    if state.fingerprint:
        content["data"] = state.fingerprint._asdict()
    temporary = folder / f".{target.name}.saving"
    try:
        clear(folder)
        temporary.mkdir()
        for name, tensors in files.items():
            save_file(tensors, temporary / name)
        if state.tokenizer is not None:
            (temporary / TOKENIZER).write_text(state.tokenizer, encoding="utf-8")
        write_state(temporary, content)
        if target.exists():  # another life of this run got as far; both are the same to the bit
            _delete(target)
        temporary.rename(target)
        sync(folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise ValueError(_write_error(folder, step, files, error)) from None
    for path in checkpoints(folder)[:-KEPT]:
        _delete(path)
    return target


def restore(path: Path, state: TrainState) -> Progress:
    """Put a checkpoint into a model, its optimizers, average and scaler; every process calls it.

    Nothing is changed before everything has been checked.

    Raises:
        ValueError: if it is damaged or belongs to something else; the message says what is wrong, and how to
            go on from the newest whole checkpoint before it.
    """
    try:
        stored, files = _read_checkpoint(path, state)
    except ValueError as error:
        raise ValueError(f"{error}. {_remedy(path, state)}") from None
    if files[OPTIMIZER]:  # empty where a loss scale has left out every step so far
        moments: dict[str, Any] = {}
        for name, tensor in files[OPTIMIZER].items():
            parameter, key = name.rsplit("/", 1)
            moments.setdefault(parameter, {})[key] = tensor.clone()  # it may be a mapped file's
        groups = get_optimizer_state_dict(state.model, state.optimizers)["param_groups"]
        optimizer_state: Any = {"state": moments, "param_groups": groups}
        set_optimizer_state_dict(state.model, state.optimizers, optimizer_state, options=WHOLE)
    for name, module in _modules(state).items():
        fill(module, files[name])
    if state.scaler:
        state.scaler.load_state_dict(stored["scaler"])
    return Progress(stored["step"], stored["seconds"])


def load_checkpoint(folder: Path, *, step: int | None = None, averaged: bool = False) -> TrainedModel:
    """A trained model from a run's folder, or from one checkpoint's, built from the settings stored there.

    Args:
        folder: of a run, or of a checkpoint, be it in a run or in ``data/models``.
        step: which checkpoint; None is the newest.
        averaged: whether to take the moving average of the weights.

    Raises:
        ValueError: if there is no checkpoint, it is damaged, or it keeps no average.
    """
    folder = Path(folder)
    alone = NAME.fullmatch(folder.name) or (folder / STATE).is_file()
    path = folder if alone else newest(folder, step)
    if path is None:
        raise ValueError(f"train: there is no checkpoint in {folder}")
    config = config_of(read_state(path)["settings"])
    if averaged and config.ema is None:
        raise ValueError(f"train: {path} keeps no moving average; the run has no ema")
    model = config.build()
    average = weight_average(model, config.ema) if averaged else None
    state = TrainState(config, model, [], average)
    try:
        stored, files = _read_checkpoint(path, state)
    except ValueError as error:
        others = [str(step_of(other)) for other in checkpoints(path.parent) if other != path]
        hint = f". Others of this run: --step {' or '.join(others)}" if others else ""
        raise ValueError(f"{error}{hint}") from None
    for name, module in _modules(state).items():
        fill(module, files[name])
    text = None
    if TOKENIZER in stored["files"]:
        _check_files(path, stored, [TOKENIZER])
        text = (path / TOKENIZER).read_text(encoding="utf-8")
    return TrainedModel(
        average.module if average else model, config, text, stored["step"], _fingerprint(stored)
    )


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a run's folder, or the snapshots of its folder of those, the oldest first."""
    return sorted((path for path in folder.glob("step-*") if NAME.fullmatch(path.name)), key=step_of)


def step_of(path: Path) -> int:
    """How many steps were done at a checkpoint or a snapshot, from its name."""
    return int(path.stem.removeprefix("step-"))


def newest(folder: Path, step: int | None = None) -> Path | None:
    """The newest checkpoint of a run, or that of a step; None where there is none yet."""
    by_step = {step_of(path): path for path in checkpoints(folder)}
    if step is None:
        return by_step[max(by_step)] if by_step else None
    if step not in by_step:
        steps = ", ".join(map(str, by_step)) or "none"
        raise ValueError(f"train: {folder} has no checkpoint of step {step}. It has: {steps}")
    return by_step[step]


def clear(folder: Path) -> None:
    """Delete what an interrupted process left under temporary names."""
    for path in [*folder.glob(".step-*.saving"), *folder.glob(".step-*.deleting")]:
        shutil.rmtree(path)
    for path in (folder / SNAPSHOTS).glob(".step-*.saving"):
        path.unlink()


def forget(folder: Path, *, after: int = -1) -> None:
    """Delete the checkpoints and snapshots after a step, all where none is given, the newest first."""
    for path in [*reversed(checkpoints(folder)), *checkpoints(folder / SNAPSHOTS)]:
        if step_of(path) > after:
            path.unlink() if path.is_file() else _delete(path)


def tensors_of(module: nn.Module) -> Tensors:
    """The whole tensors that a module stores, each under the first of its names; every process calls it.

    Under ``torchrun`` they come to the main process alone.
    """
    names = _names(module)
    stored: dict[str, Any] = get_model_state_dict(module, options=WHOLE)
    return {name: tensor.contiguous() for name, tensor in stored.items() if name in names}


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
        raise ValueError(f"train: checkpoint {path} has no {STATE}") from None
    except ValueError:  # no JSON, or no text
        raise ValueError(f"train: checkpoint {path} is damaged: {STATE} is not JSON") from None
    version = stored.get("format") if isinstance(stored, dict) else None
    if version != FORMAT:
        raise ValueError(
            f"train: checkpoint {path} has format {version!r}, and this version of gkalib reads format "
            f"{FORMAT}"
        )
    if stored.pop("seal", None) != _checksum(stored):
        raise ValueError(f"train: checkpoint {path} is damaged: {STATE} has changed since it was written")
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


def is_main() -> bool:
    """Whether this process is the one that writes."""
    return not dist.is_initialized() or dist.get_rank() == 0


def _names(module: nn.Module) -> dict[str, Tensor]:
    """The parameters and buffers by the first of their names."""
    return dict([*module.named_parameters(), *module.named_buffers()])


def _optimizer_tensors(state: TrainState) -> Tensors:
    """The optimizers' tensors as ``parameter/key``; rates of the groups are set anew at each step."""
    if not state.optimizers:
        return {}
    stored: Any = get_optimizer_state_dict(state.model, state.optimizers, options=WHOLE)
    return {
        f"{name}/{key}": tensor.contiguous()
        for name, moments in stored.get("state", {}).items()
        for key, tensor in moments.items()
    }


def fill(module: nn.Module, tensors: Tensors) -> None:
    """Give a module the tensors that ``tensors_of`` took from one like it."""
    set_model_state_dict(module, dict(tensors), options=WHOLE)


def _delete(path: Path) -> None:
    """A checkpoint loses its name first, so that none that has one lacks files."""
    target = path.with_name(f".{path.name}.deleting")
    path.rename(target)
    shutil.rmtree(target)


def _read_checkpoint(path: Path, state: TrainState) -> tuple[dict[str, Any], dict[str, Tensors]]:
    """A checkpoint's state and tensors, if it is whole and of this run."""
    stored = read_state(path)
    if state.fingerprint:
        changed = changes(state.config.data, _fingerprint(stored), state.fingerprint, "train", "held_out")
        if changed:
            raise ValueError(f"train: {changed}")
    if different := differences(stored["settings"], state.config.settings()):
        raise ValueError(f"train: checkpoint {path} is of another run: {different}")
    names = [*_modules(state), *([OPTIMIZER] if state.optimizers else [])]
    text = [TOKENIZER] if state.tokenizer is not None else []
    _check_files(path, stored, [*names, *text])
    if text and (path / TOKENIZER).read_text(encoding="utf-8") != state.tokenizer:
        raise ValueError(f"train: checkpoint {path} was trained with another tokenizer of the same size")
    files: dict[str, Tensors] = {}
    for name in names:
        try:
            files[name] = load_file(path / name)
        except SafetensorError as error:
            problem = f"{name} holds no tensors ({error})"
            raise ValueError(f"train: checkpoint {path} is damaged: {problem}") from None
        if problem := _mismatch(files[name], state, name):
            raise ValueError(f"train: checkpoint {path} does not fit the model: {name} {problem}")
    return stored, files


def _fingerprint(stored: Mapping[str, Any]) -> Fingerprint | None:
    """That of the data which a checkpoint was trained on."""
    data = stored.get("data")
    return Fingerprint(tuple(data["classes"]), data["train"], data["held_out"]) if data else None


def _check_files(path: Path, stored: Mapping[str, Any], names: Iterable[str]) -> None:
    """Refuse a checkpoint with a file missing, cut short, changed, or a pickle, which is not opened."""
    for name in names:
        if name not in stored["files"]:
            raise ValueError(f"train: checkpoint {path} was written without {name}")
        file, entry = path / name, stored["files"][name]
        if not file.is_file():
            raise ValueError(f"train: checkpoint {path} is damaged: {name} is missing")
        with file.open("rb") as stream:
            start = stream.read(4)
        if start.startswith(PICKLES):
            raise ValueError(
                f"train: checkpoint {path} is refused: {name} is a pickle, which may run any program when it "
                "is read. It was not opened"
            )
        size, expected = file.stat().st_size, entry["bytes"]
        if size < expected or sha256_of(file) != entry["sha256"]:
            cut = f"is cut short, {size:,} bytes of {expected:,}"
            problem = cut if size < expected else "has changed since it was written"
            raise ValueError(f"train: checkpoint {path} is damaged: {name} {problem}")


def _mismatch(stored: Tensors, state: TrainState, name: str) -> str | None:
    """The first tensor of a file that is not as it must be, in words."""
    if name == OPTIMIZER:  # counts of steps are numbers, everything else is as the parameters
        parameters = dict(state.model.named_parameters())
        stored = {full: tensor for full, tensor in stored.items() if not full.endswith("/step")}
        names = {full: full.rsplit("/", 1)[0] for full in stored}
        expected = {full: parameters[name] for full, name in names.items() if name in parameters}
    else:
        persistent = _modules(state)[name].state_dict()
        expected = {key: tensor for key, tensor in _names(_modules(state)[name]).items() if key in persistent}
    for key in sorted(expected.keys() ^ stored.keys()):
        return f"lacks {key}" if key in expected else f"has {key}, which the model has not"
    for key, tensor in expected.items():
        if stored[key].shape != tensor.shape:
            return f"has {key} of shape {list(stored[key].shape)}, and the model {list(tensor.shape)}"
        if stored[key].dtype != tensor.dtype:
            return f"has {key} in {stored[key].dtype}, and the model in {tensor.dtype}"
    return None


def _checksum(stored: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(stored, sort_keys=True).encode()).hexdigest()


def _remedy(path: Path, state: TrainState) -> str:
    """What to do where a checkpoint cannot be used."""
    for earlier in reversed(checkpoints(path.parent)):
        step = step_of(earlier)
        if step < step_of(path):
            with suppress(ValueError):
                _read_checkpoint(earlier, state)
                return f"The one of step {step} is whole and fits: --from-step {step} goes on from there"
    return "No earlier one fits: train into another folder with --out, or begin anew with --fresh"


def _write_error(folder: Path, step: int, files: Mapping[str, Tensors], error: Exception) -> str:
    needed = sum(tensor.nbytes for tensors in files.values() for tensor in tensors.values())
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error).split("I/O error: ")[-1]
    last = newest(folder)
    state = f"That of step {step_of(last)} is whole" if last else "There is none yet"
    return (
        f"train: the checkpoint of step {step} could not be written to {folder}: {reason} (it needs "
        f"{needed / 2**20:.2f} MiB, and {shutil.disk_usage(folder).free / 2**20:.2f} MiB are free). "
        f"{state}; make room, and give the same command again"
    )
