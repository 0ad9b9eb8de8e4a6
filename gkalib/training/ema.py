"""The moving average of a model's weights that is evaluated beside it."""

from typing import Any, cast

from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


def average(model: nn.Module, decay: float | None) -> AveragedModel | None:
    r"""A copy of the model whose weights follow θ̄ ← decay · θ̄ + (1 − decay) · θ at each update.

    The first update copies the weights, so the average starts from the weights after the first step.

    Args:
        model: before it is wrapped or compiled.
        decay: from 0, which copies, to just below 1; None makes no average.

    References:
        Polyak and Juditsky, Acceleration of stochastic approximation by averaging, 1992. Chapter 21 uses it.
    """
    if decay is None:
        return None
    follow = get_ema_multi_avg_fn(decay)

    def follow_here(averages: list[Tensor], weights: list[Tensor], updates: Tensor) -> None:
        # Where weights are split over processes, each averages its own part; buffers are not split.
        follow([_here(one) for one in averages], [_here(one) for one in weights], updates)

    return AveragedModel(model, multi_avg_fn=cast(Any, follow_here), use_buffers=True)


def _here(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
