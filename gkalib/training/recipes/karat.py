"""Kolmogorov–Arnold attention on CIFAR and ImageNet: sizes, harmonics, shared operators, bases, and more."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from gkalib.models.vit import SIZES
from gkalib.training.config import Augment, Recipe, VisionConfig
from gkalib.training.recipes.gka_imagenet import reduced, reduced_cpu, smoke

# Images to train on, batch, classes; the learning rate is DeiT's for the batch.
DATA = {"cifar10": (50_000, 32, 10), "cifar100": (50_000, 32, 100), "imagenet": (1_281_167, 128, 1000)}
EPOCHS, WARMUP = 100, 5
EPOCHS_REDUCED = {"tiny": 30, "small": 20, "base": 8}

GRIDS = {"tiny": (1, 3, 5, 7, 9, 11), "small": (1, 3, 5, 11), "base": (1, 3, 5, 11)}
BEST = {"tiny": 3, "small": 3, "base": 1}  # the grids of the paper's table 1
SOFTMAX_HEADS = {"tiny": {"hybrid": 2, "hybrid-1": 1}, "base": {"hybrid": 6}}
RANKS = {"base": (8, 24)}
BASES = ("rational", "mexican-hat", "morlet", "dog", "meyer", "shannon")
MODES = {"b": "blockwise", "u": "universal"}


def operators(size: str) -> dict[str, dict[str, Any] | None]:
    """The operators that the paper trains at a size, by the rest of their arm's name; None is softmax.

    ``g3b`` has three harmonics and operators of each block's own, ``g3u`` one per head that all blocks share.
    """
    variants: dict[str, dict[str, Any] | None] = {"softmax": None}
    for grid in GRIDS[size]:
        variants |= {f"g{grid}{letter}": {"grid": grid, "mode": mode} for letter, mode in MODES.items()}
    best = {"grid": BEST[size], "mode": "blockwise"}
    for name, heads in SOFTMAX_HEADS.get(size, {}).items():
        variants[name] = {**best, "softmax_heads": heads}
    for rank in RANKS.get(size, ()):
        for grid in (3, 5):
            for letter, mode in MODES.items():
                variants[f"g{grid}{letter}-r{rank}"] = {"grid": grid, "mode": mode, "rank": rank}
    if size == "small":
        return variants
    for letter, mode in MODES.items():
        variants[f"g3{letter}-simplex"] = {"grid": 3, "mode": mode, "projection": "after"}
    for order in ("mix_before", "two_layers"):
        variants[f"g{BEST[size]}b-{order.replace('_', '-')}"] = {**best, "order": order}
    variants |= {name: {"basis": name.replace("-", "_"), "mode": "blockwise"} for name in BASES}
    if size == "tiny":
        for grid in (1, 3):
            for letter, mode in MODES.items():
                for base in ("identity", "silu", "gelu"):
                    variants[f"g{grid}{letter}-{base}"] = {"grid": grid, "mode": mode, "base": base}
    return variants


def run(data: str, size: str, name: str, operator: dict[str, Any] | None) -> VisionConfig:
    """The run of one arm at full size: 100 epochs at 224 × 224 pixels, to which CIFAR's 32 × 32 are enlarged.

    The paper's table of settings leaves these open. Mixup and CutMix, each with probability ½, have DeiT's α,
    0.8 and 1. There is no drop path, erasing or repeated augmentation, since the table has none. Its decay
    rate and decay epochs belong to another schedule than the cosine that it names. Products are in float32:
    a Fourier series takes the score itself as an angle, and that of a score rounded to 8 bits is noise. A
    part is half a step, for the paper's two cards. Which grid its hybrids and orders have is not printed:
    here the grid of its table 1, blockwise.
    """
    images, batch, classes = DATA[data]
    epoch = images / batch
    heads = SIZES[size].num_heads
    small = (data, classes) if data != "imagenet" else ("cifar10", 10)
    return VisionConfig(
        experiment=f"karat-{data}",
        arm=f"{size}-{name}",
        attention="softmax" if operator is None else "karat",
        options=operator or {},
        data=data,
        batch=batch,
        device_batch=batch // 2,
        steps=int(EPOCHS * epoch),
        lr=5e-4 * batch / 512,
        final_lr=1e-5,
        warmup=int(WARMUP * epoch),
        warmup_lr=1e-6,
        weight_decay=0.05,
        eps=1e-6,
        clip=1.0,
        ema=0.99992,
        eval_every=int(5 * epoch),
        model=replace(SIZES[size], num_classes=classes),
        augment=Augment(
            crop=(0.08, 1.0),
            ratio=(0.67, 1.5),
            flip=0.5,
            jitter=0.4,
            policy="rand-m15-n2-mstd1.0-inc1",
            mixup=0.8,
            cutmix=1.0,
        ),
        smoothing=0.1,
        eval_crop=0.9,
        smaller={
            "smoke": smoke(heads),
            "reduced": reduced(*small, epochs=EPOCHS_REDUCED[size]),
            "reduced-cpu": reduced_cpu(*small, heads),
        },
    )


def arms(data: str) -> dict[str, Callable[[], VisionConfig]]:
    """Every size with every operator that the paper trains at that size, on one data set or another."""
    return {
        f"{size}-{name}": partial(run, data, size, name, operator)
        for size in SIZES
        for name, operator in operators(size).items()
    }


PRINTED = {
    "cifar10": "top-1: Tiny 72.76, G3B 76.69, G3U 75.56; Small 81.08, 79.78, 79.52; "
    "Base 83.45, G1B 81.81, G1U 80.75",
    "cifar100": "top-1: Tiny 43.53, G3B 46.29, G3U 46.75; Small 53.47, 54.11, 53.86; "
    "Base 58.07, G1B 55.92, G1U 57.36",
    "imagenet": "top-1: Tiny 59.15, G3B 59.11, G3U 57.97; Small 70.50, 67.77, 67.76; "
    "Base 72.90, G1B 68.03, G1U 68.83",
}

RECIPES = [
    Recipe(
        name=f"karat-{data}",
        paper="karat",
        summary=f"ViT-Tiny, Small and Base on {data}: softmax, and learned operators on rows of scores",
        expects=PRINTED[data],
        arms=arms(data),
    )
    for data in DATA
]
