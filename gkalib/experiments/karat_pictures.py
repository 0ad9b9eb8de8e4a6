"""KArAt's choices on CIFAR-10: the start, the projection onto the simplex, the grid, sharing; beside softmax.

The paper trains at 224 × 224 for 100 epochs; here pictures keep their 32 × 32 pixels, in patches of 4.
Trained on the published 50,000 pictures and tested on the published 10,000. Arms share batches, test pictures
and, where shapes match, initial weights.
"""

import copy
from typing import Any, final

import torch
from torch import Tensor, nn

from gkalib.experiments import karat_arms
from gkalib.experiments.loop import Observer
from gkalib.experiments.study import Study

EARLY = 4  # the share of the steps, 1 / 4, after which an arm is measured first
# Fourier with r = 12, W Φ̂(a), and what an arm does not say: G = 3, damped, blockwise, without projection.
ARMS = {
    "damped": {},
    "normal": {"init": "paper"},
    "damped-simplex": {"projection": "after"},
    "normal-simplex": {"projection": "after", "init": "paper"},
    "g11": {"grid": 11},
    "universal": {"mode": "universal"},
}
# the best of a sweep on a seed of its own
RATES = {
    "softmax": 2e-3, "damped": 1e-3, "normal": 1e-3, "damped-simplex": 1e-3, "normal-simplex": 2e-3,
    "universal": 1e-3, "g11": 5e-4,
}  # fmt: skip


def studies() -> list[Study]:
    """Softmax attention, and KArAt with one choice changed at a time."""
    arms = [("softmax", "softmax", {})] + [(name, "karat", options) for name, options in ARMS.items()]
    return [
        Study(
            experiment="karat-pictures",
            arm=arm,
            task="cifar10",
            attention=attention,
            options=options,
            model={"dim": 64, "depth": 4, "num_heads": 4},
            data={"train": 50_000, "test": 10_000},
            steps=1000,
            warmup=50,
            batch=32,
            lr=RATES.get(arm, Study.lr),
            shared=True,
        )
        for arm, attention, options in arms
    ]


@final
class Early(Observer):
    """The accuracy after a quarter of the steps, and of weights what ``karat-arms`` has of them."""

    early: nn.Module

    def watch(self, step: int, model: nn.Module) -> None:
        """Keep the model on the way."""
        if step == max(1, self.study.steps // EARLY):
            self.early = copy.deepcopy(model)

    @torch.no_grad()
    def measure(self, model: Any, learned: Any) -> dict[str, float | Tensor]:
        """``early_accuracy``, and what ``karat-arms`` measures."""
        early = learned.outcomes(self.early.eval()).right
        return {"early_accuracy": early} | karat_arms.measure(model, learned)


measure = Early
