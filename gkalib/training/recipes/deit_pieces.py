"""DeiT's training recipe taken apart: all of it, all but one piece, one piece alone, and none of it."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from gkalib.models.vit import SIZES
from gkalib.training.config import Recipe, VisionConfig, merged
from gkalib.training.recipes.gka_imagenet import DEIT

EPOCHS, WARMUP = 300, 5
EPOCH = 1_281_167 // 1024  # steps

# What leaving out a piece changes. The average is no piece: every run is measured with and without it.
PIECES: dict[str, dict[str, Any]] = {
    "crop-flip": {"augment": {"crop": None, "flip": 0.0}},
    "policy": {"augment": {"policy": None, "jitter": 0.0}},
    "mixing": {"augment": {"mixup": 0.0, "cutmix": 0.0}},
    "erase": {"augment": {"erase": 0.0}},
    "repeats": {"augment": {"repeats": 1}},
    "smoothing": {"smoothing": 0.0},
    "drop-path": {"model": {"drop_path": 0.0}},
    "warmup": {"warmup": 0},
}


def run(arm: str, *leave_out: str, long: int = 1) -> VisionConfig:
    """DeiT-Ti on ImageNet as its authors' code sets it, without some pieces.

    Args:
        arm: its name.
        leave_out: keys of ``PIECES``.
        long: by how much the reduced run on a CPU is longer; full runs have 300 epochs.

    References:
        Touvron et al., DeiT, 2021: the defaults of its ``main.py``. Chapter 23 reads the reduced runs.
    """
    smaller = {
        "smoke": _smaller("made-up", 16, 6, warmup=2, dim=24, depth=2, limit=256, ema=0.5),
        "reduced": _smaller("cifar10", 500, 6000, warmup=100, dim=192, depth=12, dtype="bfloat16"),
        "reduced-cpu": _smaller("cifar10", 32, 400 * long, warmup=25, dim=72, depth=4, limit=1000, ema=0.98),
    }
    if long > 1:
        smaller["reduced-cpu"]["eval_every"] = 400
    if "warmup" in leave_out:
        smaller = {scale: changes | PIECES["warmup"] for scale, changes in smaller.items()}
    config = VisionConfig(
        experiment="deit-pieces",
        arm=arm,
        data="imagenet",
        batch=1024,
        device_batch=128,
        steps=EPOCHS * EPOCH,
        lr=1e-3,
        final_lr=1e-5,
        warmup=WARMUP * EPOCH,
        warmup_lr=1e-6,
        ema=0.99996,
        dtype="bfloat16",
        eval_every=10 * EPOCH,
        model=replace(SIZES["tiny"], drop_path=0.1),
        augment=DEIT,
        smoothing=0.1,
        eval_crop=0.875,
        smaller=smaller,
    )
    for piece in leave_out:
        config = merged(config, PIECES[piece])
    return config


def _smaller(data: str, batch: int, steps: int, *, dim: int, depth: int, **changes: Any) -> dict[str, Any]:
    """Pictures of 32 × 32 pixels in patches of 8; the decay of the average is for short runs."""
    return {
        "data": data,
        "batch": batch,
        "device_batch": batch,
        "steps": steps,
        "ema": 0.999,
        "dtype": "float32",
        "eval_every": 0,
        "model": {"image_size": 32, "patch_size": 8, "dim": dim, "depth": depth, "num_classes": 10},
        "eval_crop": 1.0,
        **changes,
    }


ARMS: dict[str, Callable[[], VisionConfig]] = {
    "all": partial(run, "all"),
    **{f"no-{piece}": partial(run, f"no-{piece}", piece) for piece in PIECES},
    **{
        f"only-{piece}": partial(run, f"only-{piece}", *(other for other in PIECES if other != piece))
        for piece in PIECES
    },
    "nothing": partial(run, "nothing", *PIECES),
    "all-long": partial(run, "all-long", long=4),
    "nothing-long": partial(run, "nothing-long", *PIECES, long=4),
}

RECIPES = [
    Recipe(
        name="deit-pieces",
        paper="touvron2021",
        summary="DeiT-Ti with its training recipe, without each piece, with each alone, and with none",
        expects="top-1 on ImageNet 72.2 with all of it; for DeiT-Ti no arm without a piece is printed",
        arms=ARMS,
    )
]
