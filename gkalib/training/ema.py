"""The moving average of a model's weights that is evaluated beside it."""

from torch import nn
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
    return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay), use_buffers=True)
