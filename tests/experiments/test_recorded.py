"""Recorded runs stay true: text, images, a study and a recipe's run, trained again, give their numbers."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from chapters.experiments import FILES, trained
from gkalib import experiments, results, training
from tests.need import marks
from tests.tolerance import FLOOR

# They take seconds, of one core forty in all, and are among the shortest: recipes of text take minutes.
RUNS = {
    "text": ("variants-text", "vlt", 1, "state-of-the-union"),
    "images": ("looking", "vlt", 2, "digits"),
    "study": ("rbf-arms", "dot", 0, "tinystories"),
    "recipe": ("deit-pieces", "only-warmup", 1, "cifar10"),
}
IN_MEMORY = training.LaunchConfig(device="cpu", quiet=True, in_memory=True, keep=True)


def again(name: str, arm: str, seed: int) -> results.Record:
    """A run of an experiment or a recipe once more, with its record kept."""
    if name in FILES:
        studies, measure = trained(name)
        (study,) = (study for study in studies() if study.arm == arm)
        return experiments.train(replace(study, seed=seed), measure=measure, keep=True)
    run = training.recipe(name).run(arm).reduced("cpu")
    return training.train(replace(run, seed=seed), IN_MEMORY)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arm", "seed"),
    [pytest.param(*run, id=kind, marks=marks(data)) for kind, (*run, data) in RUNS.items()],
)
def test_a_recorded_run_trained_again_gives_its_numbers(
    name: str, arm: str, seed: int, tmp_path: Path, monkeypatch
):
    """On the processor of the record to the last digit; on another one rounding grows with the steps.

    There the first steps agree to 64 spacings of float32, and the end within the spread of the seeds: another
    order of the draws is none of that.
    """
    seeds = results.load(name, arm=arm)
    (recorded,) = (record for record in seeds if record.seed == seed)
    first = results.rows(recorded)[0]
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path))
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    made = again(name, arm, seed)
    speed = {"images_per_second": 0.0}
    assert made.metrics.keys() == recorded.metrics.keys()
    if made.metrics | speed == recorded.metrics | speed:
        return
    course = results.rows(made)[0]
    loss, now = (float(row.get("loss") or row["train_loss"]) for row in (first, course))
    allowed = FLOOR[torch.float32] * torch.finfo(torch.float32).eps * loss
    assert course["step"] == first["step"] and abs(now - loss) <= allowed
    assert made.metrics["parameters"] == recorded.metrics["parameters"]
    for metric in ("val_loss", "train_loss"):
        values = [record.metrics[metric] for record in seeds]
        assert abs(made.metrics[metric] - recorded.metrics[metric]) <= max(values) - min(values), metric
