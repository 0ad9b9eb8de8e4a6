"""KArAt's choices in one small vision transformer beside softmax attention: what chapter 9 quotes."""

import torch
from torch import nn

from gkalib.smoothing import weights_of
from gkalib.training.recipe import Recipe
from gkalib.training.tasks import Task

# Four heads, N = 50 tokens. What an arm does not say: Fourier with G = 3, r = 12, W Φ̂(a), damped, blockwise.
ARMS = {
    "g3": {},
    "g3-universal": {"mode": "universal"},
    "g3-paper": {"init": "paper"},
    "rank-1": {"rank": 1},
    "rank-4": {"rank": 4},
    "full": {"rank": None},
    "mix-before": {"order": "mix_before"},
    "two-layers": {"order": "two_layers"},
    "hybrid": {"softmax_heads": 2},
    "simplex": {"projection": "after"},
    "simplex-paper": {"projection": "after", "init": "paper"},
    "simplex-before": {"projection": "before"},
    "dog": {"basis": "dog"},
}


def recipes() -> list[Recipe]:
    """Softmax attention, and KArAt with one choice changed at a time."""
    arms = [("softmax", "softmax", {})] + [(name, "karat", options) for name, options in ARMS.items()]
    return [
        Recipe(
            experiment="karat-arms",
            arm=arm,
            task="fashion-mnist",
            attention=attention,
            options=options,
            steps=300,
            batch=16,
        )
        for arm, attention, options in arms
    ]


@torch.no_grad()
def measure(model: nn.Module, learned: Task) -> dict[str, float]:
    """What the weights of each layer are, over 64 held-out pictures.

    ``negative`` is the share of weights below zero, ``sum`` and ``sum_spread`` the mean and the deviation of
    a row's sum, ``one_hot`` the share of rows with all but a thousandth on one key, ``between_rows`` how much
    of the weights' square is not in the mean row, ``logit`` the deviation of the scores and ``beyond_pi`` the
    share of them outside one period of a Fourier unit.
    """
    calls = []
    hooks = [
        block.attn.register_forward_pre_hook(
            lambda layer, args, given: calls.append((layer, args, given)), with_kwargs=True
        )
        for block in model.blocks
    ]
    model(learned.held_out[0][:64])
    for hook in hooks:
        hook.remove()
    found = {}
    for number, (layer, args, given) in enumerate(calls, start=1):
        problem = layer.problem(*args, **given)
        weights = weights_of(problem, "dense")
        scores = problem.kernel.log(problem.query, problem.key)
        total = weights.sum(-1)
        about_mean = weights - weights.mean(2, keepdim=True)
        found |= {
            f"negative_{number}": (weights < 0).float().mean(),
            f"sum_{number}": total.mean(),
            f"sum_spread_{number}": total.std(),
            f"one_hot_{number}": (weights.amax(-1) > 0.999 * weights.abs().sum(-1)).float().mean(),
            f"between_rows_{number}": about_mean.square().sum() / weights.square().sum(),
            f"logit_{number}": scores.std(),
            f"beyond_pi_{number}": (scores.abs() > torch.pi).float().mean(),
        }
    return {name: float(value) for name, value in found.items()}
