"""Who listens to whom in a small ViT: all, the nearest few, a neighborhood, or both, for chapter 10."""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, normalize

from gkalib.analysis import capture_attention
from gkalib.experiments import Trained
from gkalib.experiments.study import Study
from gkalib.experiments.tasks import Pictures, Task
from gkalib.results import load

DEPTH, SIDE = 6, 4
COUNTS = torch.linspace(2, 4, DEPTH).round().int().tolist()  # k grows with depth to twice its start
GRID = {"grid": (SIDE, SIDE), "radius": 1.0}  # four neighbors, the patch itself and the class token

ARMS = {
    "softmax": ["softmax"],
    "gaussian": [{"name": "krause", "top_k": None}],
    "top-k": [{"name": "krause", "top_k": count} for count in COUNTS],
    "grid": [{"name": "krause", "top_k": None, **GRID}],
    "krause": [{"name": "krause", "top_k": count, **GRID} for count in COUNTS],
}


def studies() -> list[Study]:
    """One arm a rule; all but softmax with the Gaussian kernel and a learned bandwidth a head.

    The counts and the four neighbors are the authors' for CIFAR.
    """
    return [
        Study(
            experiment="krause-arms",
            arm=arm,
            task="digits",
            attention=attention,
            model={"depth": DEPTH, "dim": 64},
            steps=500,
            batch=32,
            lr=3e-3,
        )
        for arm, attention in ARMS.items()
    ]


@torch.no_grad()
def measure(model: nn.Module, learned: Task) -> dict[str, float]:
    """How alike the patches are before the first block and after each, and what each layer listens to."""
    assert isinstance(learned, Pictures)
    metrics: dict[str, float] = {}
    tokens: list[Tensor] = []

    def note(block: nn.Module, given: tuple, out: Tensor) -> None:
        tokens.extend([given[0], out] if not tokens else [out])

    hooks = [block.register_forward_hook(note) for block in model.get_submodule("blocks").children()]
    captured = capture_attention(model, learned.held_out[0][:64])
    for hook in hooks:
        hook.remove()
    for number, layer in enumerate(captured, start=1):
        metrics |= {f"{name}_{number}": value for name, value in of_layer(layer.weights).items()}
    for layer, x in enumerate(tokens):
        metrics |= {f"alike_{layer}": alike(x[:, 1:]), f"rank_{layer}": rank(x[:, 1:])}
    return metrics


def alike(x: Tensor) -> float:
    """The mean cosine between two different tokens of one picture."""
    gram = normalize(x, dim=-1) @ normalize(x, dim=-1).mT
    count = x.shape[1]
    return ((gram.sum((-1, -2)) - count) / (count * (count - 1))).mean().item()


def rank(x: Tensor) -> float:
    """In how many directions the tokens of one picture differ: exp of the entropy of their variances."""
    variances = torch.linalg.svdvals(x - x.mean(1, keepdim=True)).square()
    share = variances / variances.sum(-1, keepdim=True)
    return torch.special.entr(share).sum(-1).exp().mean().item()


def of_layer(weights: Tensor) -> dict[str, float]:
    """Effective neighbors of a row, and how much of all attention the most heard token gets."""
    return {
        "neighbors": (1 / weights.square().sum(-1)).mean().item(),
        "loudest": weights.mean(-2).amax(-1).mean().item(),
        "class_token": weights[..., 1:, 0].mean().item(),
    }


@torch.no_grad()
def agreement(blocks: Iterable[nn.Module], x: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The mean cosine of the patches before the first block and after each.

    Args:
        blocks: transformer blocks whose attention is called ``attn``.
        x: tokens ``[b n d]``, the first of which is no patch.

    Returns:
        Two vectors with one number more than there are blocks: through attention and LayerNorm alone, and
        through whole blocks. Chapter 10 draws them.
    """
    alone, courses = x, [(alike(x[:, 1:]), alike(x[:, 1:]))]
    for block in blocks:
        attended = block.get_submodule("attn")(layer_norm(alone, alone.shape[-1:]))
        alone, x = layer_norm(attended, attended.shape[-1:]), block(x)
        courses.append((alike(alone[:, 1:]), alike(x[:, 1:])))
    bare, whole = np.array(courses).T
    return bare, whole


def recorded(arm: str, *metrics: str) -> np.ndarray:
    """Metrics of an arm's runs of reduced scale, ``[seeds metrics]``, in the order of the seeds."""
    found = {run.seed: run.metrics for run in load("krause-arms", scale="reduced") if run.arm == arm}
    return np.array([[found[seed][name] for name in metrics] for seed in sorted(found)])


EXPERIMENTS = {"krause-arms": Trained(studies, measure)}
