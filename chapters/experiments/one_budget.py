"""Every variant for the same data and the same steps, each at the learning rate that suits it; and the costs.

Arms share batches, held-out items and, where shapes match, initial weights. Chapter 32 reads the records.
"""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from chapters.experiments.variants import SMALL, arms_of
from gkalib import results
from gkalib.bench.timing import processor_seconds
from gkalib.experiments import Measured, Study, Task, Trained, task
from gkalib.experiments.runner import Numbers
from gkalib.models import count
from gkalib.results.claims import Stated, claims, difference, newest, number, recorded, stated, word

# a quarter of the 50 tokens, as Linformer takes by itself; the defaults would be all of them
FEW = {name: {"landmarks": 12} for name in ("nystrom", "skyformer")}
IMAGE_RATES = {
    "gka": 8e-3,
    "gpa": 8e-3,
    "karat": 2e-3,
    "krause": 8e-3,
    "l2": 8e-3,
    "linear": 16e-3,
    "linformer": 2e-3,
    "mixed": 8e-3,
    "non-local": 4e-3,
    "nystrom": 4e-3,
    "performer": 2e-3,
    "qk-norm": 4e-3,
    "rbf": 2e-3,
    "rpe": 32e-3,
    "skyformer": 4e-3,
    "softmax": 4e-3,
    "vlt": 4e-3,
}


def named(rates: Mapping[str, float]) -> list[str]:
    """The variants that have a rate, which are those that were swept."""
    return [arm.replace("-", "_") for arm in rates]


def images() -> list[Study]:
    """One arm a variant on Fashion-MNIST.

    Trained on the published 60,000 pictures and tested on the published 10,000.
    """
    return arms_of(
        named(IMAGE_RATES),
        options=SMALL | FEW,
        learning_rates=IMAGE_RATES,
        experiment="one-budget-images",
        task="fashion-mnist",
        model={"dim": 64},
        data={"train": 60_000, "test": 10_000, "published": True},
        steps=1000,
        warmup=50,
        batch=32,
        shared=True,
    )


def faster() -> list[Study]:
    """Softmax attention on Fashion-MNIST at twice its rate, which a sweep over whole runs chose.

    With twenty seeds it is no better there, so that ``one-budget-images`` keeps the other.
    """
    name = "one-budget-images-faster"
    return [replace(one, experiment=name, lr=2 * one.lr) for one in images() if one.arm == "softmax"]


TEXT_RATES = {
    "delta": 8e-3,
    "forgetting": 8e-3,
    "gated": 8e-3,
    "gated-delta": 16e-3,
    "gka": 64e-3,
    "gpa": 8e-3,
    "krause": 32e-3,
    "l2": 8e-3,
    "linear": 16e-3,
    "local-linear": 8e-3,
    "mesa": 8e-3,
    "mixed": 8e-3,
    "non-local": 8e-3,
    "parallax": 8e-3,
    "performer": 16e-3,
    "qk-norm": 16e-3,
    "rbf": 32e-3,
    "rpe": 32e-3,
    "softmax": 8e-3,
    "vlt": 16e-3,
}


def text() -> list[Study]:
    """One arm a variant on stories."""
    return arms_of(
        named(TEXT_RATES),
        learning_rates=TEXT_RATES,
        experiment="one-budget-text",
        task="tinystories",
        data={"context": 128, "windows": 512},
        steps=1000,
        warmup=50,
        batch=8,
        shared=True,
    )


WARM, TIMED = 2, 15  # steps
FREE = ("lr", "steps", "warmup")  # settings that a step's costs do not depend on
STUDIES = {
    f"{kind}-{study.arm}": study
    for kind, studies in (("images", images()), ("text", text()))
    for study in studies
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

    ``flops`` are those of ``gkalib.count`` for one item. ``milliseconds`` are this thread's own, the least
    of fifteen steps after two, since others use the machine; with AdamW. ``mebibytes`` are what the forward
    pass keeps for the backward pass beyond the parameters, each stored tensor once.
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
    seconds = processor_seconds(step, TIMED)
    counted = count(model, inputs[:1])
    return {
        "parameters": counted.parameters,
        "flops": counted.flops,
        "milliseconds": 1000 * seconds,
        "mebibytes": memory / 2**20,
    }


def costs_of(arm: str, seed: int) -> Numbers:
    """The costs of an arm."""
    study = STUDIES[arm]
    return costs(study, task(study.task, **study.data)), []


COSTS = Measured(
    name="one-budget-costs",
    arms={arm: partial(costs_of, arm) for arm in STUDIES},
    recipe=lambda arm: {**STUDIES[arm].recorded(), **dict.fromkeys(FREE, "any"), "threads": 1},
    threads=1,
)


COLUMNS = {
    "parameters": ("{:,.0f}", 1),
    "flops": ("{:.1f}", 1e6),
    "milliseconds": ("{:.0f}", 1),
    "mebibytes": ("{:.1f}", 1),
}
NAMES = ("parameters", "Mflop", "ms", "MiB")


STUDIED = {"one-budget-images": images, "one-budget-text": text}


def standings(name: str) -> results.Table:
    """What became of each variant of an experiment, and what a training step of it costs.

    A row has the variant, the mean of its outcome over seeds and their standard deviation, the difference
    from softmax attention with its adjusted interval and verdict, the learning rate, parameters, millions of
    operations for one item, milliseconds of a training step and the mebibytes that its forward pass keeps.

    Args:
        name: ``one-budget-images`` or ``one-budget-text``.

    Raises:
        ValueError: if there is no such comparison.

    Taught in: chapter 32.
    """
    said = comparison(name)
    judged = {next(iter(one.weights)): (one, found) for one, _, found in claims(name, said).judged}
    found, spent = outcomes(name), step_costs(name)
    factor, digits = (100, 1) if said.contrasts[0].unit == "points" else (1, 3)
    rows = []
    for arm, recipe in said.arms.items():
        values = [factor * value for value in found.get(arm, {}).values()]
        compared = ("–", "–", "–")
        if arm in judged and len(values) > 1:
            one, of = judged[arm]
            interval = f"{number(one, of.low)} to {number(one, of.high)}"
            compared = (number(one, of.estimate.value), interval, word(one, of))
        rows.append(
            (
                arm,
                f"{statistics.mean(values):.{digits}f}" if values else "–",
                f"{statistics.stdev(values):.{digits}f}" if len(values) > 1 else "–",
                *compared,
                f"{recipe['lr']:g}",
                *_written(spent.get(arm)),
            )
        )
    outcome = "accuracy, %" if said.contrasts[0].metric == "accuracy" else "loss, nats"
    header = ("variant", outcome, "spread", "minus softmax", "interval", "verdict", "rate", *NAMES)
    return results.Table(header, rows, "gkalib-standings")


def comparison(name: str) -> Stated:
    """The claims of a comparison, and one more for each variant that the code has had since.

    Raises:
        ValueError: if there is no such comparison.
    """
    if name not in STUDIED:
        raise ValueError(f"standings: no comparison {name!r}. Known: {', '.join(STUDIED)}")
    said, arms = stated(name), {study.arm: study.recorded() for study in STUDIED[name]()}
    new = (
        replace(
            said.contrasts[0],
            claim=f"{arm} is as good as softmax attention",
            weights=difference(arm, "softmax"),
        )
        for arm in arms
        if arm not in said.arms
    )
    return replace(said, contrasts=(*said.contrasts, *new), arms=arms)


def outcomes(name: str) -> dict[str, dict[int, float]]:
    """The accuracy or the loss of each variant that was trained, by seed.

    Args:
        name: as for ``standings``.
    """
    said = comparison(name)
    runs: dict[str, dict[int, float]] = {}
    for record in newest(name, said.arms):
        runs.setdefault(record.arm, {})[record.seed] = float(record.metrics[said.contrasts[0].metric])
    return runs


def step_costs(name: str) -> dict[str, dict[str, float]]:
    """What a training step of each variant costs, by its newest record: the metrics of ``one-budget-costs``.

    Args:
        name: as for ``standings``.
    """
    comparison(name)
    kind, spent = f"{name.rsplit('-', 1)[-1]}-", {}
    for record in recorded(COSTS.name):
        if record.arm.startswith(kind):
            spent.setdefault(
                record.arm.removeprefix(kind), {cost: float(record.metrics[cost]) for cost in COLUMNS}
            )
    return spent


def _written(costs: Mapping[str, float] | None) -> tuple[str, ...]:
    """The costs of a step as text."""
    if costs is None:
        return ("–",) * len(COLUMNS)
    return tuple(form.format(costs[cost] / unit) for cost, (form, unit) in COLUMNS.items())


EXPERIMENTS = {
    "one-budget-costs": COSTS,
    "one-budget-images-faster": Trained(faster),
    **{name: Trained(studies) for name, studies in STUDIED.items()},
}
