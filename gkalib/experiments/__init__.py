"""Small comparisons, trained or measured on a CPU in minutes; ``chapters/experiments`` defines them."""

from gkalib.experiments.loop import Measure, Observer, evaluate, fit, train
from gkalib.experiments.runner import Measured, Trained, run
from gkalib.experiments.study import Study
from gkalib.experiments.tasks import TASKS, Task, task

__all__ = [
    "TASKS",
    "Measure",
    "Measured",
    "Observer",
    "Study",
    "Task",
    "Trained",
    "evaluate",
    "fit",
    "run",
    "task",
    "train",
]
