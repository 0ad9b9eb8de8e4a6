"""Small runs: a study goes through the training loop of all others, in memory, and becomes a record."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, cast, final

import numpy as np
import torch
from torch import Tensor, nn

from gkalib import results
from gkalib.data.registry import checksum
from gkalib.experiments.study import Study
from gkalib.experiments.tasks import Task, task
from gkalib.training import LaunchConfig, loop
from gkalib.training.distributed import start
from gkalib.training.loop import Part, Watch, Workload

ROWS = 20  # how many rows the course of a run has
IN_MEMORY = LaunchConfig(device="cpu", log_every=1, quiet=True, in_memory=True)


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
    def measure(self, model: Any, learned: Any) -> Mapping[str, float | Tensor]:
        """Numbers of the trained model and its task; a tensor where one is the mean over held-out items."""

    def rows(self, course: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """What the record's table holds, all rows with the same keys; ``course`` is that of the loss."""
        return course


# Of the trained model and its task, a tensor where a metric is the mean over held-out items; or a class of
# which each run gets an object of its own.
Measure = Callable[[Any, Any], Mapping[str, float | Tensor]] | type[Observer]


def train(study: Study, *, measure: Measure | None = None, keep: bool = False) -> results.Record:
    """Train a model from scratch on the CPU and measure it on the held-out part.

    Args:
        study: every setting of the run.
        measure: takes further numbers from the trained model; an ``Observer`` sees it at every step.
        keep: whether the record goes to ``data/results``.

    Returns:
        A record with the metrics ``val_loss`` in nats, ``baseline_loss`` of knowing the frequencies only,
        ``standard_errors``, by how many of its standard errors the paired difference of the two is above
        zero, ``train_loss`` over the last tenth of the steps, ``accuracy`` where labels are classes, and
        ``parameters``.
    """
    observer = measure(study) if isinstance(measure, type) else None
    model, learned, rows, seconds = fit(study, watch=observer.watch if observer else None)
    metrics, items = _evaluated(model, learned)
    metrics["train_loss"] = sum(row["train_loss"] for row in rows[-2:]) / len(rows[-2:])
    metrics["parameters"] = sum(parameter.numel() for parameter in model.parameters())
    further = observer.measure if observer else cast(Any, measure)
    for name, value in (further(model, learned) if further else {}).items():
        if isinstance(value, Tensor):
            items[name], value = value.numpy(), value.double().mean().item()
        metrics[name] = value
    record = record_of(study, metrics, seconds)
    if keep:
        results.save(record, rows=observer.rows(rows) if observer else rows, items=items)
    return record


def record_of(
    study: Study, metrics: dict[str, int | float], seconds: float, **changes: Any
) -> results.Record:
    """The record of a study on this processor; the changes are of its own fields."""
    own = {name: getattr(study, name) for name in ("experiment", "arm", "scale", "seed")}
    return results.Record(
        **own | {"recipe": study.recorded()} | changes,
        device=results.processor(),
        wall_seconds=round(seconds, 1),
        metrics=metrics,
        data_sha256=checksum(study.task),
        **results.provenance("torch", "numpy"),
    )


@final
class StudyWorkload(Workload):
    """Batches of a task, drawn one after the other from the study's seed; ``fit``'s caller measures."""

    config: Study

    def __init__(self, study: Study):
        super().__init__(study, start("cpu"))
        self.task = task(study.task, **study.data)

    def build(self) -> nn.Module:
        return self.config.model_of(self.task)

    def parts(self, start: int) -> Iterator[Part]:
        generator = torch.Generator().manual_seed(self.config.seed)
        batches = self.task.batches(self.config.batch, generator)
        return ((inputs, labels, self.task.count(labels)) for inputs, labels in islice(batches, start, None))

    def nats(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return self.task.nats(outputs, labels)

    def measure(self, model: nn.Module) -> dict[str, float]:
        return {}


def fit(study: Study, *, watch: Watch | None = None) -> tuple[nn.Module, Task, list[dict[str, Any]], float]:
    """The trained model, its task, the course of its loss, and the seconds it took.

    Args:
        study: every setting of the run.
        watch: called with the number of steps done and the model, before the first step and after each.
    """
    workload = StudyWorkload(study)
    fitted = loop.fit(workload, IN_MEMORY, watch=watch)
    losses = [float(row["loss"]) for row in fitted.rows]
    every = max(1, study.steps // ROWS)
    ends = [step for step in range(1, study.steps + 1) if step % every == 0 or step == study.steps]
    spans = zip([0, *ends], ends, strict=False)
    rows = [{"step": last, "train_loss": sum(losses[first:last]) / (last - first)} for first, last in spans]
    return fitted.model, workload.task, rows, fitted.seconds


def evaluate(model: nn.Module, learned: Task) -> dict[str, float]:
    """The held-out loss beside the baseline's, how far apart in standard errors, and the accuracy."""
    return _evaluated(model, learned)[0]


@torch.no_grad()
def _evaluated(model: nn.Module, learned: Task) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """The metrics, and the outcomes of single items: whether a picture is right, or the loss of a window."""
    model.eval()
    losses, right = learned.outcomes(model)
    baseline = learned.baseline()
    better = baseline - losses
    metrics = {
        "val_loss": losses.mean().item(),
        "baseline_loss": baseline.mean().item(),
        "standard_errors": (better.mean() / (better.std() / math.sqrt(len(better)))).item(),
    }
    if right is not None:
        metrics["accuracy"] = right.float().mean().item()
    if right is not None and right.ndim == 1:
        return metrics, {"accuracy": right.numpy()}
    return metrics, {"val_loss": losses.numpy()}
