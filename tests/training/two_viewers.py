"""Classifiers whose losses must not depend on how many processes share a step; also run under torchrun."""

import sys
from dataclasses import replace
from pathlib import Path

import torch

from gkalib.training import LaunchConfig, VisionConfig, recipe, train


def runs() -> dict[str, VisionConfig]:
    """Smoke runs with all that is random in them, an odd number to measure on, a measurement between."""
    made = {}
    for name, arm in {"gka-imagenet-tiny": "gka", "karat-cifar10": "tiny-g3u"}.items():
        run = recipe(name).run(arm).smoke()
        assert isinstance(run, VisionConfig)
        model = replace(run.model, drop_path=0.3)
        made[name] = replace(run, model=model, eval_images=101, eval_every=4, warmup=1, lr=3e-3)
    return made


def train_all(out: Path) -> None:
    """Train each into a folder of its name."""
    torch.set_num_threads(1)
    for name, run in runs().items():
        train(run, LaunchConfig(out=out / name, device="cpu", quiet=True, log_every=1))


if __name__ == "__main__":
    sys.modules["torch.utils.tensorboard"] = None  # type: ignore[assignment]  # seconds to import
    train_all(Path(sys.argv[1]))
