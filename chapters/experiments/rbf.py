"""RBF attention beside the dot product in small decoders: kernels, positions, registers, temperatures."""

import math

import torch
from torch import Tensor, nn

from gkalib.analysis import capture_attention
from gkalib.experiments import Trained
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


KERNELS = {name: ARMS[name][:2] for name in ("dot", "dot-double", "rbf", "rbf-half")}
POSITIONS = ("rope", "susie")
STORY_RATES = {
    "dot-rope": 8e-3,
    "dot-susie": 32e-3,
    "dot-double-rope": 8e-3,
    "dot-double-susie": 16e-3,
    "rbf-rope": 8e-3,
    "rbf-susie": 16e-3,
    "rbf-half-rope": 16e-3,
    "rbf-half-susie": 32e-3,
    "dot-rope-register": 8e-3,
    "rbf-susie-register": 16e-3,
}


def stories() -> list[Study]:
    """Each kernel with each position, and a register for the article's two models.

    The article's γ = 1/√d makes the dot product's factor 2/√d: "rbf" is at the temperature of "dot-double",
    and "rbf-half" at that of "dot". Arms share windows, held-out windows and initial weights. Ten arms and
    five seeds are 1.2 core-hours. Rates are from sweeps of half as many steps; that of "rbf-rope" is from one
    at full length, ``rbf-slower-rates``, since the shorter one gave 0.032, which was too high.
    """
    arms = [(f"{kernel}-{position}", kernel, position, 0) for kernel in KERNELS for position in POSITIONS]
    arms += [("dot-rope-register", "dot", "rope", 1), ("rbf-susie-register", "rbf", "susie", 1)]
    return [
        Study(
            experiment="rbf-stories",
            arm=arm,
            task="tinystories",
            attention=KERNELS[kernel][0],
            options=KERNELS[kernel][1],
            model={"positions": position, "registers": registers},
            data={"context": 128, "windows": 512},
            steps=1000,
            warmup=50,
            batch=8,
            lr=STORY_RATES[arm],
            shared=True,
        )
        for arm, kernel, position, registers in arms
    ]


EXPERIMENTS = {
    "rbf-arms": Trained(studies, measure),
    "rbf-stories": Trained(stories, measure),
}
