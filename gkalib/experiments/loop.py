"""The training loop of small runs, in reading order, from a study to a record."""

import math
import os
import platform
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from gkalib import results
from gkalib.experiments.study import Study
from gkalib.experiments.tasks import Task, task

Watch = Callable[[int, nn.Module], None]  # of the number of steps done and the model
ROWS = 20  # how many rows the course of a run has


class Observer(ABC):
    """What is kept of one run while it trains, and measured of it afterwards.

    Args:
        study: the run.
    """

    def __init__(self, study: Study):
        self.study = study

    def watch(self, step: int, model: nn.Module) -> None:
        """Called before the first step and after each, with the number of steps done."""

    @abstractmethod
    def measure(self, model: Any, learned: Any) -> dict[str, float]:
        """Numbers of the trained model and its task."""

    def rows(self, course: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """What the record's table holds, all rows with the same keys; ``course`` is that of the loss."""
        return course


# Of the trained model and its task; or a class of which each run gets an object of its own.
Measure = Callable[[Any, Any], dict[str, float]] | type[Observer]


def train(study: Study, *, measure: Measure | None = None, keep: bool = False) -> results.Record:
    """Train a model from scratch on the CPU and measure it on the held-out part.

    Args:
        study: every setting of the run.
        measure: takes further numbers from the trained model; an ``Observer`` sees it at every step.
        keep: whether the record goes to ``data/results``.

    Returns:
        A record with the metrics ``val_loss`` in nats, ``baseline_loss`` of knowing the frequencies only,
        ``standard_errors``, by how many of its standard errors the paired difference of the two is above
        zero, ``train_loss`` over the last tenth of the steps, ``accuracy`` and ``parameters``.

    Raises:
        ValueError: if the study names what does not exist.
    """
    observer = measure(study) if isinstance(measure, type) else None
    model, learned, rows, seconds = fit(study, watch=observer.watch if observer else None)
    metrics = evaluate(model, learned)
    metrics["train_loss"] = sum(row["train_loss"] for row in rows[-2:]) / len(rows[-2:])
    metrics["parameters"] = sum(parameter.numel() for parameter in model.parameters())
    if observer is not None:
        metrics |= observer.measure(model, learned)
        rows = observer.rows(rows)
    elif measure is not None:
        metrics |= cast(Any, measure)(model, learned)
    record = results.Record(
        experiment=study.experiment,
        arm=study.arm,
        scale=study.scale,
        recipe=study.settings(),
        seed=study.seed,
        device=f"{os.cpu_count()} cores {platform.machine()}",
        wall_seconds=round(seconds, 1),
        metrics=metrics,
        **results.provenance("torch", "numpy"),
    )
    if keep:
        results.save(record, rows=rows)
    return record


def fit(study: Study, *, watch: Watch | None = None) -> tuple[nn.Module, Task, list[dict[str, Any]], float]:
    """The trained model, its task, the course of its loss, and the seconds it took.

    Args:
        study: every setting of the run.
        watch: called with the number of steps done and the model, before the first step and after each.
    """
    torch.manual_seed(study.seed)
    learned = task(study.task, **study.data)
    model = learned.model(study.layers(), **study.model).train()
    optimizer = torch.optim.AdamW(_groups(model, study), betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, study))
    batches = learned.batches(study.batch, torch.Generator().manual_seed(study.seed))
    rows, recent, begin = [], [], time.perf_counter()
    watch = watch or (lambda step, model: None)
    watch(0, model)
    for step in range(1, study.steps + 1):
        inputs, labels = next(batches)
        loss = cross_entropy(model(inputs).flatten(0, -2), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        watch(step, model)
        recent.append(loss.item())
        if step % max(1, study.steps // ROWS) == 0 or step == study.steps:
            rows.append({"step": step, "train_loss": sum(recent) / len(recent)})
            recent = []
    return model, learned, rows, time.perf_counter() - begin


@torch.no_grad()
def evaluate(model: nn.Module, learned: Task) -> dict[str, float]:
    """The held-out loss beside the baseline's, how far apart in standard errors, and the accuracy."""
    model.eval()
    losses, baseline = learned.losses(model), learned.baseline()
    better = baseline - losses
    inputs, labels = learned.held_out
    right = torch.cat([model(one).argmax(-1) for one in inputs.split(64)]) == labels
    return {
        "val_loss": losses.mean().item(),
        "baseline_loss": baseline.mean().item(),
        "standard_errors": (better.mean() / (better.std() / math.sqrt(len(better)))).item(),
        "accuracy": right.float().mean().item(),
    }


def rate(step: int, study: Study) -> float:
    """The share of the peak learning rate after ``step`` steps: a linear rise, then a cosine to a tenth."""
    if step < study.warmup:
        return (step + 1) / study.warmup
    done = (step - study.warmup) / max(1, study.steps - study.warmup)
    return 0.1 + 0.45 * (1 + math.cos(math.pi * min(done, 1.0)))


def _groups(model: nn.Module, study: Study) -> list[dict[str, Any]]:
    """Matrices with weight decay; biases, norms, bandwidths and what has a rate of its own, without."""
    groups: dict[tuple[float, float], list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        own = [factor for part, factor in study.rates.items() if part in name]
        decay = 0.0 if own or parameter.ndim <= 1 else study.weight_decay
        groups.setdefault((math.prod(own), decay), []).append(parameter)
    return [
        {"params": parameters, "lr": study.lr * factor, "weight_decay": decay}
        for (factor, decay), parameters in groups.items()
    ]
