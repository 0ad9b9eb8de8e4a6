"""Experiments: small comparisons that chapters quote, each trained or measured on a CPU in minutes."""

import pkgutil
from importlib import import_module

from gkalib.experiments.loop import Measure, Observer, evaluate, fit, train
from gkalib.experiments.study import Study
from gkalib.experiments.tasks import TASKS, Task, task

MEASURED = (
    "approximations",
    "counts",
    "kan-cifar",
    "kan-mlp",
    "karat-rank",
    "one-budget-costs",
    "structure",
    "traps",
)
"""The experiments that are measured, not trained; ``gkalib.experiments.runner`` runs both."""

# the files of this folder that define no experiment
_SHARED = {
    "__main__",
    "double",
    "inspect_run",
    "loop",
    "options",
    "runner",
    "standings",
    "study",
    "sweep",
    "tasks",
}


def experiments() -> list[str]:
    """The names of the experiments that are made of studies: the files of this folder that define them."""
    names = {module.name for module in pkgutil.iter_modules(__path__)} - _SHARED
    return sorted({name.replace("_", "-") for name in names} - {*MEASURED})


def experiment(name: str) -> tuple[list[Study], Measure | None]:
    """The studies of an experiment, one an arm, and what it measures beyond the loss."""
    if name not in experiments():
        raise ValueError(f"experiment: no experiment {name!r}. Known: {', '.join(experiments())}")
    module = import_module(f"{__name__}.{name.replace('-', '_')}")
    return module.studies(), getattr(module, "measure", None)


__all__ = [
    "MEASURED",
    "TASKS",
    "Measure",
    "Observer",
    "Study",
    "Task",
    "evaluate",
    "experiment",
    "experiments",
    "fit",
    "task",
    "train",
]
