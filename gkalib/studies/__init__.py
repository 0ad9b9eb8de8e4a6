"""Studies: small comparisons that chapters quote, each trained on a CPU in a minute or two."""

import pkgutil
from importlib import import_module

from gkalib.studies import experiments as _experiments
from gkalib.studies.loop import Measure, Observer, evaluate, fit, train
from gkalib.studies.study import Study
from gkalib.studies.tasks import TASKS, Task, task


def experiments() -> list[str]:
    """The names of the experiments that are made of studies: the files of ``studies/experiments``."""
    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(_experiments.__path__))


def experiment(name: str) -> tuple[list[Study], Measure | None]:
    """The studies of an experiment, one an arm, and what it measures beyond the loss.

    Raises:
        ValueError: if there is no such experiment.
    """
    if name not in experiments():
        raise ValueError(f"train: no experiment {name!r}. Known: {', '.join(experiments())}")
    module = import_module(f"{_experiments.__name__}.{name.replace('-', '_')}")
    return module.studies(), getattr(module, "measure", None)


__all__ = [
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
