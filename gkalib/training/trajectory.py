"""Snapshots: a run's weights alone, kept every few steps, so that its path can be looked at afterwards."""

import re
from pathlib import Path
from typing import NamedTuple

import torch.distributed as dist
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from gkalib.training import sealed
from gkalib.training.held import Training, gathered, unique

FOLDER = "snapshots"
NAME = re.compile(r"step-(\d{8,})\.safetensors")


class Snapshot(NamedTuple):
    """How many steps were done, and the model's tensors by name."""

    step: int
    weights: dict[str, Tensor]


def due(step: int, *, every: int, last: int) -> bool:
    """Whether a snapshot is taken after so many steps: every few, and the last."""
    return every > 0 and (step % every == 0 or step == last)


def keep(folder: Path, training: Training, *, step: int) -> None:
    """Write ``folder/snapshots/step-00000100.safetensors``; every process calls it.

    It gets its name when all of it is on the disk. No other snapshot is ever deleted for it.

    Args:
        folder: of the run.
        training: whose model is kept, each tensor once however many modules share it.
        step: how many steps are done.

    Raises:
        ValueError: if the disk is full or cannot be written to; nothing of the attempt is left.
    """
    main = not dist.is_initialized() or dist.get_rank() == 0
    whole = gathered(unique(training.model), main=main)
    if not main:
        return
    target = folder / FOLDER / f"step-{step:08d}.safetensors"
    holder = target.with_name(f".{target.name}.saving")
    try:
        target.parent.mkdir(exist_ok=True)
        save_file(whole, holder)
        sealed.sync(holder)
        holder.replace(target)
        sealed.sync(target.parent)
    except (OSError, SafetensorError) as error:
        holder.unlink(missing_ok=True)
        raise ValueError(
            f"train: the snapshot of step {step} could not be written to {target.parent}: {error}; make "
            "room, and give the same command again"
        ) from None


def read(folder: Path) -> list[Snapshot]:
    """The snapshots of a run in the order of their steps; none where it kept none.

    Args:
        folder: of the run.

    Raises:
        ValueError: if one is damaged.

    Taught in: chapter 24.
    """
    found = []
    for path in kept(Path(folder)):
        try:
            found.append(Snapshot(step_of(path), load_file(path)))
        except SafetensorError as error:
            raise ValueError(f"train: snapshot {path} is damaged: it holds no tensors ({error})") from None
    return found


def kept(folder: Path) -> list[Path]:
    """The files of a run's snapshots, the oldest first."""
    found = [path for path in (folder / FOLDER).glob("step-*") if NAME.fullmatch(path.name)]
    return sorted(found, key=step_of)


def step_of(path: Path) -> int:
    """How many steps were done at a snapshot, from its name."""
    return int(path.stem.removeprefix("step-"))


def clear(folder: Path) -> None:
    """Delete what an interrupted process left under a temporary name."""
    for path in (folder / FOLDER).glob(".step-*.saving"):
        path.unlink()


def forget(folder: Path, *, after: int = -1) -> None:
    """Delete the snapshots after a step, all where none is given."""
    for path in kept(folder):
        if step_of(path) > after:
            path.unlink()
