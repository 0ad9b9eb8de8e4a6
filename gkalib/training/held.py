"""What a checkpoint holds: the tensors and numbers of a model, its optimizers, average and scaler by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel

from gkalib.training import sealed
from gkalib.training.config import TrainConfig

Tensors = dict[str, Tensor]


def unique(module: nn.Module) -> Tensors:
    """The parameters and buffers that a module stores, each under the first of its names."""
    seen: dict[int, str] = {}
    kept = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        if seen.setdefault(id(tensor), name) == name:
            kept[name] = tensor.detach()
    return kept


def tensors_of(training: "Training") -> dict[str, Tensors]:
    """What each file holds."""
    held = {sealed.MODEL: unique(training.model)}
    if training.average is not None:
        held[sealed.AVERAGE] = unique(training.average)
    held[sealed.OPTIMIZER] = {
        f"{name}/{key}": value
        for name, state in _states(training)
        for key, value in state.items()
        if isinstance(value, Tensor)
    }
    return held


def _states(training: "Training") -> list[tuple[str, dict[str, Any]]]:
    """The state of each parameter in its optimizer, by the parameter's name.

    What stands beside them, the rates and decays of the groups, is set anew at each step.
    """
    names = {parameter: name for name, parameter in training.model.named_parameters()}
    return [
        (names[parameter], optimizer.state[parameter])
        for optimizer in training.optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
        if parameter in optimizer.state
    ]


def numbers(training: "Training") -> dict[str, Any]:
    """What is no tensor in the optimizers."""
    return {
        f"{name}/{key}": value
        for name, state in _states(training)
        for key, value in state.items()
        if not isinstance(value, Tensor)
    }


def gathered(tensors: Tensors, *, main: bool) -> Tensors:
    """Whole tensors on the CPU of the main process, in one piece each; every process calls it."""
    made = {}
    for name, tensor in tensors.items():
        whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if main:
            made[name] = whole.detach().cpu().contiguous()
    return made


def fill(held: Tensors, stored: Tensors) -> None:
    """Copy stored tensors into a module's, which are shared between modules as before."""
    with torch.no_grad():
        for name, tensor in held.items():
            tensor.copy_(_placed(stored[name], tensor))


def _placed(stored: Tensor, like: Tensor) -> Tensor:
    """A stored tensor on the device of another, and split as that is."""
    stored = stored.to(like.device, copy=True)  # a copy: it was read from a mapped file
    if isinstance(like, DTensor):
        # Every process has read all of it and keeps its part; nothing is sent.
        return distribute_tensor(stored, like.device_mesh, like.placements, src_data_rank=None)
    return stored


def fill_optimizers(training: "Training", stored: Tensors, numbers: Mapping[str, Any]) -> None:
    """Give the optimizers the state of each parameter."""
    by_name: dict[str, dict[str, Any]] = {}
    for full, value in {**stored, **numbers}.items():
        name, key = full.rsplit("/", 1)
        by_name.setdefault(name, {})[key] = value
    parameters = dict(training.model.named_parameters())
    for optimizer in training.optimizers:
        ours = {parameter for group in optimizer.param_groups for parameter in group["params"]}
        for name, state in by_name.items():
            parameter = parameters[name]
            if parameter in ours:
                optimizer.state[parameter] = {
                    # AdamW counts steps on the CPU; everything else is of the parameter's shape and place.
                    key: _placed(value, parameter) if isinstance(value, Tensor) and key != "step" else value
                    for key, value in state.items()
                }


def moments(stored: Tensors, training: "Training") -> Tensors:
    """What the optimizers' tensors must be like: a count of steps each, the rest as the parameters."""
    parameters = dict(training.model.named_parameters())
    named = {full: full.rsplit("/", 1) for full in stored}
    return {
        full: torch.zeros(()) if key == "step" else parameters[name]
        for full, (name, key) in named.items()
        if name in parameters
    }


@final
@dataclass(frozen=True)
class Training:
    """Everything that a checkpoint holds but the step: one place for what changes while a model is trained.

    Random numbers have no state here: those of a step are keyed by its number, as are the rows that it reads.

    Args:
        run: the settings.
        model: not wrapped, not compiled; its parameters may be split over processes.
        optimizers: of its parameters.
        average: of its weights, if there is one.
        scaler: of the loss, for float16.
        tokenizer: as JSON, for text.
    """

    run: TrainConfig
    model: nn.Module
    optimizers: list[Optimizer]
    average: AveragedModel | None = None
    scaler: GradScaler | None = None
    tokenizer: str | None = None
