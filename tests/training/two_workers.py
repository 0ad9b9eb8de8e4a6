"""Runs whose losses must not depend on how many processes share a step; alone and under torchrun."""

import sys
from dataclasses import replace
from pathlib import Path

import torch

from gkalib import training
from gkalib.training import LanguageConfig, LaunchConfig, recipe


def runs() -> dict[str, LanguageConfig]:
    """Each kind of rows and optimizer at smoke size; a step has two parts, or four where it accumulates."""
    made = {
        "windows": recipe("gpa-dickens").run("bank-rope").smoke(),
        "accumulated": replace(recipe("gpa-dickens").run("rope").smoke(), device_batch=2),
        "documents": recipe("rbf-tinystories").run("rbf-registers").smoke(),
        "muon": recipe("gka-nanochat-d20").run("baseline").smoke(),
        # At the smoke run's own rate a rounding grows to 1e-3 in 20 steps, by Muon's products in bfloat16 and
        # by AdamW's ε of 1e-10, under which a gradient that is nothing but rounding moves its weight in full.
        "muon-accumulated": replace(
            recipe("gka-nanochat-d20").run("baseline").smoke(), device_batch=2, lr=0.02 * 2**-5.5
        ),
    }
    return {name: run for name, run in made.items() if isinstance(run, LanguageConfig)}


def train_all(out: Path) -> None:
    """Train each into a folder of its name."""
    torch.set_num_threads(1)
    for name, run in runs().items():
        training.train(run, LaunchConfig(out=out / name, device="cpu", quiet=True, log_every=1))


if __name__ == "__main__":
    train_all(Path(sys.argv[1]))
