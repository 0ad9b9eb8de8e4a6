"""Snapshots: a run's weights alone, kept every few steps, so that its path can be looked at afterwards."""

from pathlib import Path
from typing import NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from gkalib.training.checkpoint import SNAPSHOTS, Tensors, checkpoints, is_main, step_of, sync, tensors_of
from gkalib.training.optim import TrainState


class Snapshot(NamedTuple):
    """How many steps were done, and the model's tensors by name."""

    step: int
    weights: Tensors


def save_snapshot(folder: Path, state: TrainState, *, step: int) -> None:
    """Write ``folder/snapshots/step-00000100.safetensors``, the weights alone; every process calls it.

    It gets its name when all of it is on the disk. No other snapshot is ever deleted for it.
    """
    tensors = tensors_of(state.model)
    if not is_main():
        return
    target = folder / SNAPSHOTS / f"step-{step:08d}.safetensors"
    temporary = target.with_name(f".{target.name}.saving")
    try:
        target.parent.mkdir(exist_ok=True)
        save_file(tensors, temporary)
        sync(temporary)
        temporary.replace(target)
        sync(target.parent)
    except (OSError, SafetensorError) as error:
        temporary.unlink(missing_ok=True)
        raise ValueError(
            f"train: the snapshot of step {step} could not be written to {target.parent}: {error}; make "
            "room, and give the same command again"
        ) from None


def read_snapshots(folder: Path) -> list[Snapshot]:
    """The snapshots of a run in the order of their steps; none where it kept none.

    Taught in: chapter 24.
    """
    snapshots = []
    for path in checkpoints(Path(folder) / SNAPSHOTS):
        try:
            snapshots.append(Snapshot(step_of(path), load_file(path)))
        except SafetensorError as error:
            raise ValueError(f"train: snapshot {path} is damaged: it holds no tensors ({error})") from None
    return snapshots
