"""Dot product, RBF, QK-norm, L2, no denominator in small decoders, at one rate: what chapter 26 quotes."""

import math

import torch
from torch import Tensor, nn

from gkalib.analysis import capture_attention
from gkalib.experiments.study import Study
from gkalib.experiments.tasks import Task
from gkalib.kernels.stationary import Stationary
from gkalib.models.gpt import GPT
from gkalib.smoothing import Problem

HEAD_DIM = 16
HALF = 0.5 / math.sqrt(HEAD_DIM)  # γ of softmax attention without votes; the article's is twice that, and so
# is the γ of "dot-double", whose score is 2/√d times the dot product

# name: (variant, its options, where tokens stand, registers)
ARMS = {
    "dot": ("softmax", {}, "rope", 0),
    "dot-double": ("softmax", {"scale": 4 * HALF}, "rope", 0),
    "rbf": ("rbf", {}, "rope", 0),
    "rbf-half": ("rbf", {"gamma": HALF}, "rope", 0),
    "qk-norm": ("qk_norm", {}, "rope", 0),
    "unnormalized": ("rbf", {"form": "unnormalized"}, "rope", 0),
    "l2": ("l2", {}, "rope", 0),
    "dot-susie": ("softmax", {}, "susie", 0),
    "rbf-susie": ("rbf", {}, "susie", 0),
    "dot-register": ("softmax", {}, "rope", 1),
    "rbf-register": ("rbf", {}, "susie", 1),
}


def studies() -> list[Study]:
    """One arm a kernel, all with rotary positions; then SuSiE, and a register, for two of them."""
    return [
        Study(
            experiment="rbf-arms",
            arm=arm,
            task="tinystories",
            attention=variant,
            options=options,
            model={"positions": positions, "registers": registers},
            data={"context": 128},
            steps=350,
            batch=8,
        )
        for arm, (variant, options, positions, registers) in ARMS.items()
    ]


@torch.no_grad()
def measure(model: nn.Module, learned: Task) -> dict[str, float]:
    """What each layer attends to in held-out windows: means over heads and the later half of the queries."""
    assert isinstance(model, GPT)
    metrics: dict[str, float] = {}
    for number, layer in enumerate(capture_attention(model, learned.held_out[0][:32]), start=1):
        numbers = of_layer(layer.problems[0], layer.weights, model.config.registers)
        metrics |= {f"{name}_{number}": value for name, value in numbers.items()}
    return metrics


def of_layer(problem: Problem, weights: Tensor, registers: int) -> dict[str, float]:
    """Numbers of one layer's weights, queries and keys."""
    half = problem.sizes[2] // 2
    weights = weights[..., half:, :]
    share = weights / weights.sum(-1, keepdim=True)
    lengths = problem.key[:, :, registers:].norm(dim=-1)
    metrics = {
        "neighbors": (1 / share.square().sum(-1)).mean(),
        "first": share[..., registers].mean(),
        "key_length": lengths.mean(),
        "key_spread": (lengths.std(-1) / lengths.mean(-1)).mean(),
    }
    if isinstance(problem.kernel, Stationary):
        values = problem.kernel(problem.query[..., half:, :], problem.key)
        metrics["mass"] = values.tril(half).sum(-1).mean()
    if registers:
        middle, place = problem.query[:, :, registers:].mean((0, 2)), problem.key[0, :, 0]
        metrics["register"] = share[..., :registers].sum(-1).mean()
        metrics["register_to_origin"] = place.norm(dim=-1).mean()
        metrics["register_to_mean"] = (place - middle).norm(dim=-1).mean()
        metrics["mean_to_origin"] = middle.norm(dim=-1).mean()
    return {name: value.item() for name, value in metrics.items()}
