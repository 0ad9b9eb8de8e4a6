"""Training within a page: small models in float64, so that printed digits stand on every processor."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from gkalib.analysis.landscape import snapshot
from gkalib.experiments.tasks import Task

BATCH = 32


def train_double(
    model: nn.Module, learned: Task, *, steps: int, peak: float, every: int | None = None
) -> list[dict[str, Tensor]]:
    """Train a model in place by AdamW on batches of 32, which no other random draw changes.

    The learning rate rises to its peak over a tenth of the steps and falls along a cosine to nearly zero.

    Args:
        model: in float64.
        learned: the task, whose inputs are numbers and not token ids.
        steps: how many.
        peak: the largest learning rate.
        every: how many steps lie between snapshots; None keeps none.

    Returns:
        Copies of all parameters, before the first step and after every so many.

    Raises:
        ValueError: if a parameter has another type than float64.

    Taught in: chapters 25 and 26.
    """
    kinds = {parameter.dtype for parameter in model.parameters()}
    if kinds != {torch.float64}:
        raise ValueError(f"train_double: parameters are {', '.join(map(str, kinds))}; needed is float64")
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.05, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, peak, total_steps=steps, pct_start=0.1, cycle_momentum=False
    )
    batches = learned.batches(BATCH, torch.Generator().manual_seed(0))
    snapshots = [snapshot(model)] if every else []
    for step in range(1, steps + 1):
        inputs, labels = next(batches)
        optimizer.zero_grad()
        cross_entropy(model(inputs.double()), labels).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if every and step % every == 0:
            snapshots.append(snapshot(model))
    return snapshots
