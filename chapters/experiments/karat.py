"""KArAt's choices in small vision transformers beside softmax attention."""

import copy
from typing import Any, final

import torch
from torch import Tensor, nn

from gkalib.analysis import capture_attention
from gkalib.experiments import Trained
from gkalib.experiments.loop import Observer
from gkalib.experiments.study import Study
from gkalib.experiments.tasks import Pictures, Task
from gkalib.models import ViT
from gkalib.normalizers import Normalizer

# Four heads, N = 50 tokens. What an arm does not say: Fourier with G = 3, r = 12, W Φ̂(a), damped, blockwise.
ARMS = {
    "g3": {},
    "g3-universal": {"mode": "universal"},
    "g3-paper": {"init": "paper"},
    "rank-1": {"rank": 1},
    "full": {"rank": None},
    "mix-before": {"order": "mix_before"},
    "hybrid": {"softmax_heads": 2},
    "simplex": {"projection": "after"},
    "simplex-paper": {"projection": "after", "init": "paper"},
}

NAMES = {
    "softmax": "softmax",
    "softmax-long": "softmax, 1,200 steps",
    "g3": "KArAt, r = 12, G = 3",
    "g3-universal": "… universal",
    "g3-paper": "… N(0, 1) start",
    "rank-1": "… r = 1",
    "full": "… full rank",
    "mix-before": "… W before units",
    "hybrid": "… half the heads softmax",
    "simplex": "… projected, damped",
    "simplex-paper": "… projected, N(0, 1)",
}
"""The arms in words, in the order of a figure; a leading … stands for KArAt."""


def studies() -> list[Study]:
    """Softmax attention, briefly and four times as long, and KArAt with one choice changed at a time."""
    arms = [("softmax", "softmax", {}, 300), ("softmax-long", "softmax", {}, 1200)]
    arms += [(name, "karat", options, 300) for name, options in ARMS.items()]
    return [
        Study(
            experiment="karat-arms",
            arm=arm,
            task="fashion-mnist",
            attention=attention,
            options=options,
            steps=steps,
            batch=16,
        )
        for arm, attention, options, steps in arms
    ]


@final
class Fixed(Normalizer):
    """The same weights for every picture, whatever its scores: ``[1 h n m]``."""

    averages = False
    weights: Tensor

    def __init__(self, weights: Tensor):
        super().__init__()
        self.register_buffer("weights", weights, persistent=False)

    def forward(self, scores: Tensor) -> Tensor:
        return self.weights.expand_as(scores)


@torch.no_grad()
def measure(model: nn.Module, learned: Task) -> dict[str, float]:
    """What the weights of each layer are over 64 held-out pictures, and what they are worth.

    ``negative`` is the share of weights below zero, ``sum`` and ``sum_spread`` the mean and the deviation of
    a row's sum, ``one_hot`` the share of rows with all but a thousandth on one key, ``of_picture`` the share
    of the weights' square that is not in their mean over pictures, ``logit`` the deviation of the scores and
    ``beyond_pi`` the share of them outside one period of a Fourier unit. ``fixed_accuracy`` is the accuracy
    with every layer's weights replaced by their mean over 256 training pictures.
    """
    assert isinstance(model, ViT) and isinstance(learned, Pictures)
    metrics: dict[str, Tensor] = {}
    for number, layer in enumerate(capture_attention(model, learned.held_out[0][:64]), start=1):
        weights, problem = layer.weights, layer.problems[0]
        scores = problem.kernel.log(problem.query, problem.key)
        total = weights.sum(-1)
        largest, mass = weights.amax(-1), weights.abs().sum(-1)
        metrics |= {
            f"negative_{number}": (weights < 0).float().mean(),
            f"sum_{number}": total.mean(),
            f"sum_spread_{number}": total.std(),
            f"one_hot_{number}": (largest > 0.999 * mass).float().mean(),
            f"of_picture_{number}": (weights - weights.mean(0)).square().sum() / weights.square().sum(),
            f"logit_{number}": scores.std(),
            f"beyond_pi_{number}": (scores.abs() > torch.pi).float().mean(),
        }
    for block, layer in zip(model.blocks, capture_attention(model, learned.images[:256]), strict=True):
        block.get_submodule("attn").normalizer = Fixed(layer.weights.mean(0, keepdim=True))
    right = learned.outcomes(model).right
    assert right is not None  # pictures have classes
    metrics["fixed_accuracy"] = right.float().mean()
    return {name: float(value) for name, value in metrics.items()}


EARLY = 4  # the share of the steps, 1 / 4, after which an arm is measured first
# Fourier with r = 12, W Φ̂(a), and what an arm does not say: G = 3, damped, blockwise, without projection.
PICTURES = {
    "damped": {},
    "normal": {"init": "paper"},
    "damped-simplex": {"projection": "after"},
    "normal-simplex": {"projection": "after", "init": "paper"},
    "g11": {"grid": 11},
    "universal": {"mode": "universal"},
}
# the best of a sweep on a seed of its own
PICTURE_RATES = {
    "softmax": 2e-3, "damped": 1e-3, "normal": 1e-3, "damped-simplex": 1e-3, "normal-simplex": 2e-3,
    "universal": 1e-3, "g11": 5e-4,
}  # fmt: skip


def pictures() -> list[Study]:
    """Softmax attention, and KArAt with one choice changed at a time, on CIFAR-10.

    The paper trains at 224 × 224 for 100 epochs; here pictures keep their 32 × 32 pixels, in patches of 4.
    Trained on the published 50,000 pictures and tested on the published 10,000. Arms share batches, test
    pictures and, where shapes match, initial weights.
    """
    arms = [("softmax", "softmax", {})] + [(name, "karat", options) for name, options in PICTURES.items()]
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
            lr=PICTURE_RATES.get(arm, Study.lr),
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
        return {"early_accuracy": early} | measure(model, learned)


EXPERIMENTS = {"karat-arms": Trained(studies, measure), "karat-pictures": Trained(pictures, Early)}
