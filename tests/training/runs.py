"""Small runs that tests of training start from."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from gkalib import results
from gkalib.models import GPTConfig, ViTConfig
from gkalib.training import LanguageConfig, LaunchConfig, TrainConfig, VisionConfig, recipe, train


def launch(folder: Path, **changes: Any) -> LaunchConfig:
    """On the CPU, without a word, with a row of the curve a step."""
    return LaunchConfig(**{"out": folder, "device": "cpu", "log_every": 1, "quiet": True} | changes)


def smoke(name: str, folder: Path, arm: str | None = None, **changes: Any) -> results.Record:
    """Three steps of a recipe's smoke run."""
    run = replace(recipe(name).run(arm).smoke(), steps=3, warmup=1, eval_every=0, **changes)
    return train(run, LaunchConfig(out=folder, device="cpu", quiet=True))


def recorded(run: TrainConfig, **changes: Any) -> results.Record:
    """A made-up record of a run, from a clean tree."""
    fields = {
        "experiment": run.experiment,
        "arm": run.arm,
        "scale": run.scale,
        "recipe": run.recorded(),
        "seed": run.seed,
        "device": "cpu",
        "commit": "0" * 40,
        "clean": True,
        "date": "2026-11-01T00:00:00+00:00",
        "wall_seconds": 1.0,
        "metrics": {"val_loss": 1.0},
    }
    return results.Record(**{**fields, **changes})


def by_two(program: str, folder: Path, *words: str) -> str:
    """Run a program of this folder in two processes; what they said."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    with subprocess.Popen(
        [sys.executable, *torchrun, "-m", f"tests.training.{program}", str(folder), *words],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        try:
            _, said = run.communicate(timeout=300)
        finally:
            run.terminate()  # not killed: so torchrun ends both processes
    assert run.returncode == 0, said[-3000:]
    return said


def text_run(**changes: Any) -> LanguageConfig:
    """A decoder of three thousand parameters on the fixture."""
    settings: dict[str, Any] = {
        "experiment": "tiny",
        "arm": "softmax",
        "data": "state-of-the-union",
        "batch": 4,
        "device_batch": 2,
        "steps": 10,
        "lr": 1e-2,
        "model": GPTConfig(vocab_size=11, context=8, dim=16, depth=1, num_heads=2),
    }
    return LanguageConfig(**settings | changes)


def picture_run(**changes: Any) -> VisionConfig:
    """A classifier of made-up pictures of 8 × 8 pixels."""
    settings: dict[str, Any] = {
        "experiment": "tiny",
        "arm": "softmax",
        "data": "made-up",
        "batch": 4,
        "device_batch": 2,
        "steps": 10,
        "lr": 1e-2,
        "model": ViTConfig(image_size=8, patch_size=4, dim=16, depth=1, num_heads=2, num_classes=3),
    }
    return VisionConfig(**settings | changes)
