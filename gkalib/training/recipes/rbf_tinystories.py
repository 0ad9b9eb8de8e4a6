"""The experiment of the article on RBF attention: short stories, read by dot products or by distances.

Settings are those of its trainer, ``4rtemi5/rbf_attention`` at commit 61707b5: one pass over TinyStories in
batches of 64 stories, a thousandth held out, each story cut off and padded to 256 tokens with the registers,
targets masked at padding, float16 products with a loss scale, AdamW's own β and weight decay 0.01, the rate
up to 1e-3 in 1,000 steps and down a cosine to 1e-5, no clipping. One thing differs: the trainer decays every
parameter, ours biases, norms, registers and positions not.

``standard`` is softmax attention with rotary positions and, as in the trainer, registers; ``rbf`` has SuSiE
and no registers, ``rbf-registers`` both. The article prints no held-out loss.
"""

from dataclasses import replace
from typing import Any

from gkalib.models import PRESETS
from gkalib.training.config import LanguageConfig, Recipe

SMALLER: dict[str, dict[str, Any]] = {
    "smoke": {
        "data": "state-of-the-union",
        "tokenizer": "bpe",
        "model": {"vocab_size": 300, "context": 32, "dim": 32, "depth": 2, "num_heads": 2},
        "batch": 4,
        "device_batch": 2,
        "steps": 20,
        "warmup": 4,
        "dtype": "float32",
        "prompt": "The",
        "eval_every": 10,
        "eval_rows": 8,
    },
    "reduced": {"limit": 100_000_000, "steps": 4_000, "warmup": 200, "eval_every": 500},
    "reduced-cpu": {
        "data": "tinystories",
        "tokenizer": "bpe",
        "model": {"vocab_size": 1_024, "dim": 128, "depth": 4, "num_heads": 4},
        "batch": 8,
        "device_batch": 8,
        "steps": 900,
        "warmup": 50,
        "dtype": "float32",
        "eval_every": 150,
        "eval_rows": 64,
    },
}


def _run(recipe: str, preset: str, arm: str) -> LanguageConfig:
    """One arm at full size."""
    config = PRESETS[preset]
    if arm == "standard":
        # Registers start at the origin under distances, at random under dot products.
        config = replace(config, positions="rope", register_std=config.dim**-0.5)
    elif arm == "rbf":
        config = replace(config, registers=0)
    return LanguageConfig(
        experiment=recipe,
        arm=arm,
        attention="softmax" if arm == "standard" else "rbf",
        data="tinystories-full",
        tokenizer="gpt2",
        rows="documents",
        model=config,
        batch=64,
        device_batch=64,
        steps=33_088,
        lr=1e-3,
        final_lr=1e-5,
        warmup=1_000,
        warmup_lr=1e-3 * 1e-5,
        weight_decay=0.01,
        dtype="float16",
        prompt="Once upon a time",
        eval_every=1_000,
        eval_rows=2_048,
        smaller=SMALLER,
    )


RECIPES = [
    Recipe(
        name=name,
        paper="rbfattention",
        summary=f"short stories: dot products, distances, distances with {registers}; {size}",
        expects="the loss on training stories ends near 1.5, that of distances slightly lower",
        arms={
            arm: lambda name=name, preset=preset, arm=arm: _run(name, preset, arm)
            for arm in ("standard", "rbf", "rbf-registers")
        },
    )
    for name, preset, registers, size in (
        ("rbf-tinystories", "rbf-tiny", "a register", "D 256, 4 layers"),
        ("rbf-tinystories-small", "rbf-small", "four registers", "D 512, 8 layers"),
    )
]
