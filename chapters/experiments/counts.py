"""The papers' models, counted: what their tables print beside what our modules come to."""

import io
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from gkalib.experiments.runner import Measured
from gkalib.layers import attention
from gkalib.models import count, gpt, vit


class Counted(NamedTuple):
    """A model to count: how to build it, and the shape and type of its input."""

    build: Callable[[], nn.Module]
    image: bool = True
    baseline: str | None = None  # the arm that percentages refer to
    tokens: int = 0  # that the paper trains it on, for the operations of the whole training


GRIDS = (1, 3, 5, 7, 9, 11)
_TEN = {"tiny": 10, "small": 1000, "base": 10}  # the classes of KArAt's baselines, which mix two heads


def _karat(size: str, grid: int, mode: str, rank: int = 12) -> Counted:
    layer = attention("karat", grid=grid, mode=mode, rank=rank)
    return Counted(
        lambda: vit(size, attention=layer, num_classes=_TEN[size]), baseline=f"karat-{size}-softmax"
    )


def models() -> dict[str, Counted]:
    """Every model that a paper prints a size of, by the name of its arm."""
    known: dict[str, Counted] = {}
    for short, size in (("ti", "tiny"), ("s", "small"), ("b", "base")):
        known[f"deit-{short}"] = Counted(lambda size=size: vit(size))
        known[f"gka-{short}"] = Counted(
            lambda size=size: vit(size, attention="gka"), baseline=f"deit-{short}"
        )
    known["vlt-ti"] = Counted(lambda: vit("tiny", attention="vlt"), baseline="deit-ti")
    # 4,357 and 2,650 steps of 2²⁰ tokens
    known["nanochat-d20"] = Counted(lambda: gpt("nanochat-d20"), image=False, tokens=4357 * 2**20)
    known["nanochat-d20-gka"] = Counted(
        lambda: gpt("nanochat-d20-gka", attention="gka"),
        image=False,
        baseline="nanochat-d20",
        tokens=2650 * 2**20,
    )
    for size in ("tiny", "small", "base"):
        known[f"karat-{size}-softmax"] = Counted(lambda size=size: vit(size, num_classes=_TEN[size]))
        for grid in GRIDS:
            for letter, mode in (("b", "blockwise"), ("u", "universal")):
                known[f"karat-{size}-g{grid}{letter}"] = _karat(size, grid, mode)
    for rank in (4, 2):
        for size, grid in (("tiny", 3), ("base", 1)):
            for letter, mode in (("b", "blockwise"), ("u", "universal")):
                known[f"karat-{size}-g{grid}{letter}-r{rank}"] = _karat(size, grid, mode, rank)
    known["gpa-softmax"] = Counted(lambda: gpt("gpa-dickens"), image=False)
    known["gpa"] = Counted(lambda: gpt("gpa-dickens", attention="gpa"), image=False, baseline="gpa-softmax")
    for size in ("tiny", "small"):
        softmax = {"attention": "softmax", "positions": "rope"}
        known[f"rbf-{size}-softmax"] = Counted(
            lambda size=size, on=softmax: gpt(f"rbf-{size}", **on), image=False
        )
        known[f"rbf-{size}"] = Counted(
            lambda size=size: gpt(f"rbf-{size}", attention="rbf"), image=False, baseline=f"rbf-{size}-softmax"
        )
    return known


def numbers(name: str) -> dict[str, int | float]:
    """What one model comes to, in the units that the papers' tables are read in.

    Args:
        name: of an arm.

    Returns:
        The fields of ``gkalib.count``, the number of bandwidths, the differences from the baseline, and
        ``file_mebibytes``, the size of the file in which ``torch.save`` stores a checkpoint.
    """
    chosen = models()[name]
    model = _empty(chosen.build)
    counted = count(model, _input(model, chosen))
    metrics = {key: value for key, value in vars(counted).items() if value is not None}
    metrics["sigmas"] = sum(p.numel() for path, p in model.named_parameters() if "log_sigma" in path)
    if (chosen.image and chosen.baseline is None) or name.startswith("gka"):
        metrics["file_mebibytes"] = _file(model)
    if chosen.tokens:
        metrics["training_flops"] = metrics["flops_per_token"] * chosen.tokens
    if chosen.baseline is not None:
        base_model = _empty(models()[chosen.baseline].build)
        base = count(base_model, _input(base_model, chosen))
        metrics["added_parameters"] = counted.parameters - base.parameters
        for key in ("parameters", "attention_parameters", "flops"):
            metrics[f"{key}_change"] = 100 * (getattr(counted, key) / getattr(base, key) - 1)
    return metrics


def _empty(build: Callable[[], nn.Module]) -> nn.Module:
    with torch.device("meta"):
        return build()


def _input(model: Any, counted: Counted) -> torch.Tensor:
    if counted.image:
        return torch.empty(1, 3, 224, 224, device="meta")
    return torch.empty(1, model.config.context, dtype=torch.long, device="meta")


def _file(model: nn.Module) -> float:
    stored = io.BytesIO()
    torch.save({name: torch.zeros(t.shape, dtype=t.dtype) for name, t in model.state_dict().items()}, stored)
    return stored.tell() / 2**20


MEASURED = Measured(
    name="counts",
    arms={name: lambda seed, name=name: (numbers(name), []) for name in models()},
    recipe=lambda name: {"model": name},
    scale="full",
    device="any",
    packages=("torch", "timm"),
)

EXPERIMENTS = {MEASURED.name: MEASURED}
