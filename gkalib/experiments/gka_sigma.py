"""Where GKA's bandwidth starts: does anything mix, does the class token see the picture, does σ move?"""

from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from gkalib.analysis import capture_attention
from gkalib.experiments.study import Study
from gkalib.kernels import Gaussian
from gkalib.smoothing import compute_weights

STARTS = (0.5, 1.0, 1.5, None, 4.0, 8.0, 32.0)  # None is d^¼, 2.38 for heads of 32 numbers


def studies() -> list[Study]:
    """GKA from each start with a class token, from three with the mean of patches; softmax and VLT."""
    arms = [(f"class-{start or 'default'}", "gka", {"sigma": start}, True) for start in STARTS]
    arms += [(f"mean-{start or 'default'}", "gka", {"sigma": start}, False) for start in (0.5, None, 8.0)]
    arms += [("class-softmax", "softmax", {}, True), ("class-vlt", "vlt", {}, True)]
    return [
        Study(
            experiment="gka-sigma",
            arm=arm,
            task="fashion-mnist",
            attention=attention,
            options=options,
            model={"dim": 64, "depth": 3, "num_heads": 2, "class_token": class_token},
            steps=400,
            batch=32,
        )
        for arm, attention, options, class_token in arms
    ]


def measure(model: Any, learned: Any) -> dict[str, float]:
    """What rows of weights do; where no bandwidth is learned, logistic regression beside them."""
    found = rows(model, learned)
    has_sigma = any(name.startswith("sigma") for name in found)
    return found if has_sigma else found | {"logistic_accuracy": logistic(learned)}


@torch.no_grad()
def rows(model: Any, learned: Any) -> dict[str, float]:
    """Of each layer, over 64 held-out pictures: what a row of weights does, and the bandwidths.

    ``neighbors`` is the mean of 1 / Σ_j w_ij², ``diagonal`` of w_ii, ``first`` of the first token's weight on
    itself, which is the class token's where there is one.
    """
    metrics = {}
    captured = capture_attention(model, learned.held_out[0][:64])
    for number, (layer, block) in enumerate(zip(captured, model.blocks, strict=True), start=1):
        weights, kernel = compute_weights(layer.problems[0], "dense"), block.attn.kernel
        own = weights.diagonal(dim1=-2, dim2=-1)
        metrics[f"neighbors_{number}"] = (1 / weights.square().sum(-1)).mean().item()
        metrics[f"diagonal_{number}"] = own.mean().item()
        metrics[f"first_{number}"] = own[..., 0].mean().item()
        sigmas = torch.as_tensor(kernel.sigma).tolist() if isinstance(kernel, Gaussian) else []
        for head, sigma in enumerate(sigmas, start=1):
            metrics[f"sigma_{number}_{head}"] = sigma
    return metrics


def logistic(learned: Any, iterations: int = 50) -> float:
    """The held-out accuracy of logistic regression on the pixels, fitted to all training pictures."""
    line = nn.Linear(learned.images[0].numel(), learned.classes)
    nn.init.zeros_(line.weight)
    nn.init.zeros_(line.bias)
    optimizer = torch.optim.LBFGS(line.parameters(), max_iter=iterations, line_search_fn="strong_wolfe")
    pixels = learned.images.flatten(1)

    def loss() -> Any:
        optimizer.zero_grad()
        found = cross_entropy(line(pixels), learned.labels) + 1e-4 * line.weight.square().sum()
        found.backward()
        return found

    optimizer.step(loss)
    inputs, labels = learned.held_out
    with torch.no_grad():
        return (line(inputs.flatten(1)).argmax(-1) == labels).float().mean().item()
