"""What a training step costs with each variant, in the models and batches of the comparison at one budget.

Chapter 30 reads the records.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from gkalib.experiments import one_budget_images, one_budget_text
from gkalib.experiments.runner import Experiment, Measured
from gkalib.experiments.study import Study
from gkalib.experiments.tasks import Task, task
from gkalib.models import count

WARM, TIMED = 2, 9  # steps
FREE = ("lr", "steps", "warmup")  # settings that a step's costs do not depend on
STUDIES = {
    f"{kind}-{study.arm}": study
    for kind, module in (("images", one_budget_images), ("text", one_budget_text))
    for study in module.studies()
}


def kept(forward: Callable[[], Tensor]) -> int:
    """The bytes that a forward pass keeps for the backward pass, each storage once, parameters left out."""
    storages: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        if not (tensor.requires_grad and tensor.is_leaf):
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        _out = forward()  # alive, so that no storage takes another's place
    return sum(storages.values())


def costs(study: Study, learned: Task) -> dict[str, int | float]:
    """Parameters of a study's model, and operations, time and memory of a training step on one batch.

    ``flops`` are those of ``gkalib.count`` for one item. ``milliseconds`` are this thread's own, the median
    of nine steps after two, with AdamW. ``mebibytes`` are what the forward pass keeps for the backward pass
    beyond the parameters, each stored tensor once.
    """
    model = study.model_of(learned)
    inputs, labels = next(learned.batches(study.batch, torch.Generator().manual_seed(study.seed)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=study.lr)

    def step() -> None:
        loss = cross_entropy(model(inputs).flatten(0, -2), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    memory = kept(lambda: model(inputs))
    for _ in range(WARM):
        step()
    took = []
    for _ in range(TIMED):
        start = time.process_time()
        step()
        took.append(time.process_time() - start)
    counted = count(model, inputs[:1])
    return {
        "parameters": counted.parameters,
        "flops": counted.flops,
        "milliseconds": 1000 * statistics.median(took),
        "mebibytes": memory / 2**20,
    }


def measure(arm: str, seed: int) -> Measured:
    """The costs of an arm."""
    study = STUDIES[arm]
    return costs(study, task(study.task, **study.data)), []


EXPERIMENT = Experiment(
    name="one-budget-costs",
    arms={arm: partial(measure, arm) for arm in STUDIES},
    recipe=lambda arm: {**STUDIES[arm].recorded(), **dict.fromkeys(FREE, "any"), "threads": 1},
    threads=1,
)
