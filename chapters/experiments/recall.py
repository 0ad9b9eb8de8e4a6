"""Fixed memories and kernels, trained: recalling pairs, and fitting a linear map from its points.

Arms share batches, held-out sequences and, where shapes match, initial weights. Chapter 15 reads the records.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from chapters.experiments.variants import arms_of
from gkalib.experiments import Study, Trained

ARMS = ("softmax", "parallax", "forgetting", "linear", "gated", "gated_delta", "mesa")
LATE = 12  # pairs, from which on errors are late: least squares in 8 dimensions needs 8
# the best of a sweep on a seed of its own
RECALL_RATES: Mapping[str, float] = {
    "softmax": 8e-3,
    "parallax": 8e-3,
    "forgetting": 8e-3,
    "linear": 16e-3,
    "gated": 4e-3,
    "gated-delta": 16e-3,
    "mesa": 8e-3,
}
IN_CONTEXT_RATES: Mapping[str, float] = {
    "softmax": 4e-3,
    "parallax": 2e-3,
    "forgetting": 4e-3,
    "linear": 32e-3,
    "gated": 2e-3,
    "gated-delta": 16e-3,
    "mesa": 64e-3,
}


def recall() -> list[Study]:
    """One arm a layer on multi-query associative recall, 4 to 16 pairs in 64 tokens."""
    return arms_of(
        ARMS,
        learning_rates=RECALL_RATES,
        experiment="recall",
        task="recall",
        model={"mlp_ratio": 1},
        steps=400,
        warmup=40,
        batch=16,
        shared=True,
    )


def in_context() -> list[Study]:
    """One arm a layer on in-context linear regression in 8 dimensions, up to 16 pairs.

    ``mesa-slower`` is the Mesa layer at half its rate, at which one of its five runs learned nothing.
    """
    every = arms_of(
        ARMS,
        learning_rates=IN_CONTEXT_RATES,
        experiment="in-context",
        task="in-context",
        model={"mlp_ratio": 1},
        steps=400,
        warmup=40,
        batch=32,
        shared=True,
    )
    return every + [replace(one, arm="mesa-slower", lr=one.lr / 2) for one in every if one.arm == "mesa"]


@torch.no_grad()
def by_pairs(model: Any, learned: Any) -> dict[str, float]:
    """The share of queries answered rightly in sequences with so many pairs, ``accuracy_4`` and on."""
    found = {}
    for pairs in learned.pairs:
        drawn = learned.sequences(pairs, learned.test, torch.Generator().manual_seed(2**20 + pairs))
        found[f"accuracy_{pairs}"] = learned.answers(model, *drawn).right.mean().item()
    return found


@torch.no_grad()
def by_points(model: Any, learned: Any) -> dict[str, float | Tensor]:
    """The squared error after each number of pairs, ``error_1`` and on; ``late`` is the mean of the last."""
    errors = learned.errors(model)
    found = {f"error_{pairs}": error for pairs, error in enumerate(errors.mean(0).tolist(), start=1)}
    return found | {"late": errors[:, LATE - 1 :].mean(-1)}


EXPERIMENTS = {"recall": Trained(recall, by_pairs), "in-context": Trained(in_context, by_points)}
