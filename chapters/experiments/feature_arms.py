"""Does a decoder trained on random features learn the kernel that they estimate, or these features?"""

from collections.abc import Callable
from typing import Any

import torch

from gkalib.analysis import capture_attention
from gkalib.experiments import Trained
from gkalib.experiments.study import Study
from gkalib.kernels import ExpDot, Kernel, PositiveRandom

ARMS = {
    "softmax": ("softmax", {}),
    "linear": ("linear", {}),
    "performer-16": ("performer", {"num_features": 16}),
    "performer-110": ("performer", {}),  # ⌊d ln d⌋ for heads of 32 numbers
}
FEATURES = (16, 110, 440)
DRAWS = 2


def studies() -> list[Study]:
    """Softmax attention, the linear transformer, and Performers of two sizes."""
    return [
        Study(
            experiment="feature-arms",
            arm=arm,
            task="tinystories",
            attention=attention,
            options=options,
            model={"num_heads": 2},
            data={"context": 128, "windows": 64},
            steps=300,
            batch=8,
            lr=4e-3,
        )
        for arm, (attention, options) in ARMS.items()
    ]


@torch.no_grad()
def measure(model: Any, learned: Any) -> dict[str, float]:
    """The norms that variance grows with, and the held-out loss with other kernels in the trained layers.

    ``sum_<layer>`` is the mean of s ‖q + k‖² under the layer's own weights. ``loss_exact`` is the loss with
    the exponential dot product for a kernel, ``loss_<r>`` with r new random features of it, the mean of two
    draws.
    """
    metrics = {f"sum_{number}": size for number, size in enumerate(_sums(model, learned), start=1)}
    layers = [block.attn for block in model.blocks]
    if layers[0].name() == "linear":
        return metrics
    metrics["loss_exact"] = _loss(model, learned, lambda layer, draw: ExpDot())
    for features in FEATURES:
        losses = [
            _loss(
                model,
                learned,
                lambda layer, draw, r=features: PositiveRandom(32, r, seed=draw, stabilizer="row"),
                draw=1000 * draw,
            )
            for draw in range(1, DRAWS + 1)
        ]
        metrics[f"loss_{features}"] = sum(losses) / DRAWS
    return metrics


def _loss(model: Any, learned: Any, kernel: Callable[[int, int], Kernel], draw: int = 0) -> float:
    """The held-out loss with a kernel in place of each layer's own."""
    own = [block.attn.kernel for block in model.blocks]
    for number, block in enumerate(model.blocks):
        block.attn.kernel = kernel(number, draw + number)
    loss = learned.outcomes(model).losses.mean().item()
    for block, before in zip(model.blocks, own, strict=True):
        block.attn.kernel = before
    return loss


def _sums(model: Any, learned: Any) -> list[float]:
    """The mean of s ‖q + k‖² of each layer, under its own weights, over 16 held-out windows."""
    sums = []
    for layer in capture_attention(model, learned.held_out[0][:16]):
        query, key = layer.problems[0].query, layer.problems[0].key
        squares = query.square().sum(-1)[..., None] + key.square().sum(-1)[..., None, :]
        whole = (squares + 2 * query @ key.mT) / query.shape[-1] ** 0.5
        sums.append((layer.weights * whole).sum(-1).mean().item())
    return sums


EXPERIMENTS = {"feature-arms": Trained(studies, measure)}
