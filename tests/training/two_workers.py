"""Runs whose losses must not depend on how many processes share a step; alone and under torchrun."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from gkalib.training import LanguageConfig, TrainConfig, VisionConfig, recipe, train
from tests.training.runs import launch


def texts() -> dict[str, LanguageConfig]:
    """Each kind of rows and optimizer at smoke size; a step has two parts, or four where it accumulates."""
    nanochat: Any = recipe("gka-nanochat-d20").run("baseline").smoke()
    made: dict[str, Any] = {
        "windows": recipe("gpa-dickens").run("bank-rope").smoke(),
        "accumulated": replace(recipe("gpa-dickens").run("rope").smoke(), device_batch=2),
        "documents": recipe("rbf-tinystories").run("rbf-registers").smoke(),
        "muon": nanochat,
        # At the smoke run's own rate a rounding grows to 1e-3 in 20 steps, by Muon's products in bfloat16 and
        # by AdamW's ε of 1e-10, under which a gradient that is nothing but rounding moves its weight in full.
        "muon-accumulated": replace(nanochat, device_batch=2, lr=0.02 * 2**-5.5),
    }
    return made


def pictures() -> dict[str, VisionConfig]:
    """Smoke runs with all that is random in them, an odd number to measure on, a measurement between."""
    made = {}
    for name, arm in {"gka-imagenet-tiny": "gka", "karat-cifar10": "tiny-g3u"}.items():
        run: Any = recipe(name).run(arm).smoke()
        model = replace(run.model, drop_path=0.3)
        made[name] = replace(run, model=model, eval_images=101, eval_every=4, warmup=1, lr=3e-3)
    return made


def train_all(out: Path, runs: Mapping[str, TrainConfig]) -> None:
    """Train each into a folder of its name."""
    torch.set_num_threads(1)
    for name, run in runs.items():
        train(run, launch(out / name))


if __name__ == "__main__":
    sys.modules["torch.utils.tensorboard"] = None  # type: ignore[assignment]  # seconds to import
    train_all(Path(sys.argv[1]), {"texts": texts, "pictures": pictures}[sys.argv[2]]())
