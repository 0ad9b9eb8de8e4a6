"""What a model reaches in a task, and over tasks: accuracy above guessing and its standard error."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

from gkalib.evaluation.tasks import Task


def centered(accuracy: float, baseline: float) -> float:
    """(accuracy − baseline) / (1 − baseline): guessing gives 0, knowing everything 1."""
    return (accuracy - baseline) / (1 - baseline)


def core(results: Sequence["TaskResult"]) -> "Core":
    """CORE over the tasks that were measured; compare models on the tasks that both have.

    Raises:
        ValueError: if there are none.
    """
    if not results:
        raise ValueError("evaluate: CORE is a mean over tasks, and there are none")
    error = math.sqrt(sum(result.centered_error**2 for result in results))
    mean = sum(result.centered for result in results) / len(results)
    return Core(mean, error / len(results), len(results))


def outcome(task: Task, count: int, right: int, cropped: int, *, shots: int, seconds: float) -> "TaskResult":
    """The share of right answers and its standard error, from how many there are of each."""
    accuracy = right / count
    error = math.sqrt(accuracy * (1 - accuracy) / (count - 1)) if count > 1 else math.nan
    return TaskResult(task.name, accuracy, error, task.baseline, count, shots, cropped, seconds)


@final
@dataclass(frozen=True)
class TaskResult:
    """What a model reaches in one task.

    Args:
        name: CORE's name of it.
        accuracy: the share of questions answered rightly.
        error: the standard error of that, √(accuracy · (1 − accuracy) / (items − 1)).
        baseline: the accuracy of guessing.
        items: how many questions there were.
        shots: how many examples preceded each.
        cropped: how many were too long for the model's context.
        seconds: what it took, once the questions were read from their set; of processes that shared them the
            mean.
    """

    name: str
    accuracy: float
    error: float
    baseline: float
    items: int
    shots: int
    cropped: int
    seconds: float

    @property
    def centered(self) -> float:
        """The accuracy above guessing, 0 for guessing and 1 for all."""
        return centered(self.accuracy, self.baseline)

    @property
    def centered_error(self) -> float:
        """The standard error of the centered accuracy."""
        return self.error / (1 - self.baseline)


class Core(NamedTuple):
    """The mean of centered accuracies over some tasks.

    Args:
        mean: over the tasks.
        error: its standard error from the questions' number alone: √(Σ error²) / tasks.
        tasks: how many they are.
    """

    mean: float
    error: float
    tasks: int
