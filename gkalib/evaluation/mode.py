"""A model while it is measured: no dropout, no gradients, its data where it is."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

Model = nn.Module | Callable[[Tensor], Tensor]
"""What is measured: a module, or any function from a batch to logits."""


@contextmanager
def evaluating(model: Model) -> Iterator[None]:
    """Without gradients and in evaluation mode; afterwards every module is in the mode in which it was."""
    parts = model.modules() if isinstance(model, nn.Module) else ()
    training = [part for part in parts if part.training]
    try:
        for part in training:
            part.training = False
        with torch.no_grad():
            yield
    finally:
        for part in training:
            part.training = True


def device_of(model: Model) -> torch.device:
    """Where a module's parameters lie; the CPU for a function."""
    parameter = next(model.parameters(), None) if isinstance(model, nn.Module) else None
    return torch.device("cpu") if parameter is None else parameter.device
