"""One update of the weights from the gradients of a step, and a watch for numbers that are none."""

import math
from typing import final

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from gkalib.training.distributed import World
from gkalib.training.held import Training


def descend(training: Training) -> Tensor:
    """Clip the gradients, let the optimizers do a step, and let the average follow.

    With a loss scale the gradients are first divided by it, and an optimizer leaves the step out if one of
    its gradients is not finite then.

    Returns:
        The norm of the whole gradient before it was clipped.
    """
    scaler = training.scaler
    if scaler:
        for optimizer in training.optimizers:
            scaler.unscale_(optimizer)
    weights = [weight for weight in training.model.parameters() if weight.grad is not None]
    norm = nn.utils.get_total_norm([weight.grad for weight in weights if weight.grad is not None])
    if training.run.clip is not None:
        nn.utils.clip_grads_with_norm_(weights, training.run.clip, norm)
    for optimizer in training.optimizers:
        if scaler:
            scaler.step(optimizer)
        else:
            optimizer.step()
    if scaler:
        scaler.update()
    if training.average is not None:
        training.average.update_parameters(training.model)
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


@final
class Watch:
    """Remembers the first step that had a number which is infinite or none, without waiting for the GPU.

    Args:
        world: the processes, which agree on that step.
    """

    def __init__(self, world: World):
        self.world = world
        self._first = torch.full((), math.inf, dtype=torch.float64, device=world.device)

    def see(self, step: int, *numbers: Tensor) -> None:
        """Look at some numbers of a step."""
        for number in numbers:
            self._first = torch.where(number.isfinite(), self._first, self._first.clamp(max=step))

    def first(self) -> int | None:
        """The first such step of any process; every process asks."""
        mine = self._first.item()
        worst = self.world.most(-int(mine) if math.isfinite(mine) else -(2**62))
        return None if worst == -(2**62) else -worst
