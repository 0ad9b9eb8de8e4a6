"""GKA's experiment with text: nanochat at depth 20, its own attention against Gaussian Kernel Attention.

Settings are those of ``karpathy/nanochat`` at commit 212bdae, at which the paper's counts come out: steps of
2²⁰ tokens, Muon with a rate of 0.02 for the matrices of the blocks, AdamW with β (0.8, 0.95) and ε 1e-10 for
the rest, 0.3 for embeddings and 0.004 for the head, both times (D/768)^-½, 0.5 for the scales of the first
layer and a hundredth of that for those of the residual, all times √(B/2¹⁹) for B tokens a step; no warm-up, a
line to zero over the last half of the steps, no clipping. Muon's matrices decay by 0.2 √(B/2¹⁹) N₁₂/N, where
N counts the matrices and the head and N₁₂ those of depth 12, in a line down to zero.

The paper's two runs differ in more than attention: the baseline has 419 million parameters of value
embeddings, which GKA has no values for, and reads 10.5 tokens per parameter where GKA reads 8.25. So there
are three more arms. In ``gka-matched`` GKA has the operations of the baseline's run, in ``baseline-matched``
the baseline has those of GKA's, and ``baseline-plain`` is the baseline without value embeddings. Steps of
smaller runs keep these proportions.

What is ours: the rate of log σ, which nobody states, is that of the residual's scales, 0.005, since at that
of other scalars one step would double a bandwidth. What PyTorch's Muon does otherwise: other coefficients of
its five Newton-Schulz steps, no second moment per row, decay whether or not update and weight agree in sign;
and the scales of the first layer have β₁ 0.8, nanochat's 0.96. Weights are float32 where nanochat keeps
embeddings in bfloat16.

The first step is no step of descent for the scales of the first layer, in nanochat as here: while the blocks
add nothing, the last norm makes the loss blind to them, so that their gradient is rounding alone, and AdamW
with so small an ε moves them by up to the whole rate in the direction that it happens to have.
"""

import math
from dataclasses import replace
from functools import partial
from typing import Any

from gkalib.models import PRESETS, GPTConfig
from gkalib.training.config import LanguageConfig, Recipe

BASELINE, GKA = PRESETS["nanochat-d20"], PRESETS["nanochat-d20-gka"]
STEPS = {"baseline": 4_357, "gka": 2_650}  # the paper's
BATCH = 2**20 // BASELINE.context

# scale: (sizes, what else changes, steps of the baseline). The rule for rates is of steps of 2¹⁹ tokens;
# where a CPU takes 2¹¹ and fewer, four times what it gives learns faster, so that we set the rate there.
SCALES: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
    "smoke": (
        {"vocab_size": 512, "context": 32, "dim": 64, "depth": 2, "num_heads": 2},
        {
            "data": "state-of-the-union",
            "batch": 8,
            "device_batch": 4,
            "lr": 0.02,
            "dtype": "float32",
            "prompt": "The",
            "eval_every": 10,
            "eval_rows": 8,
        },
        20,
    ),
    "reduced": (
        {"vocab_size": 8_192, "context": 1_024, "dim": 384, "depth": 6, "num_heads": 3},
        {"batch": 64, "device_batch": 32, "limit": 400_000_000, "eval_every": 250, "eval_rows": 512},
        1_500,
    ),
    "reduced-cpu": (
        {"vocab_size": 1_024, "context": 256, "dim": 128, "depth": 4, "num_heads": 2},
        {
            "data": "dickens",
            "limit": 3_000_000,
            "batch": 8,
            "device_batch": 8,
            "lr": 0.005,
            "dtype": "float32",
            "prompt": "It was",
            "eval_every": 150,
            "eval_rows": 64,
        },
        900,
    ),
}


def scaling_parameters(config: GPTConfig, *, projections: int) -> int:
    """N: the parameters of the blocks' matrices and of the head, which nanochat scales by.

    Args:
        config: sizes of the model.
        projections: matrices of an attention layer, 4, or 1 under GKA.
    """
    gates = 32 * config.num_heads * ((config.depth + 1) // 2) if config.value_embeddings else 0
    return config.depth * (8 + projections) * config.dim**2 + gates + config.vocab_size * config.dim


def operations_per_token(config: GPTConfig, *, projections: int) -> int:
    """nanochat's estimate for training on one token: 6 N, and 12 D a layer for each key of its last query."""
    windows = sum(config.window(layer) or config.context for layer in range(config.depth))
    return 6 * scaling_parameters(config, projections=projections) + 12 * config.dim * windows


def _optimization(config: GPTConfig, projections: int, tokens: int) -> dict[str, Any]:
    """Rates and decay at a size of the model and of a step."""
    narrow, larger = (config.dim / 768) ** -0.5, math.sqrt(tokens / 2**19)
    width = config.dim // config.num_heads
    reference = replace(config, depth=12, dim=768, num_heads=max(1, 768 // width))
    share = scaling_parameters(reference, projections=projections) / scaling_parameters(
        config, projections=projections
    )
    return {
        "lr": 0.02 * larger,
        "rates": {
            "embedding.": 0.3 * narrow / 0.02,
            ".values.": 0.3 * narrow / 0.02,
            "head.": 0.004 * narrow / 0.02,
            "first_scale": 0.5 / 0.02,
            "residual_scale": 0.005 / 0.02,
            "log_sigma": 0.005 / 0.02,
        },
        "weight_decay": 0.2 * larger * share,
    }


def _steps(arm: str, baseline: int, sizes: dict[str, Any]) -> int:
    """The steps of an arm where the baseline has so many."""
    own = round(baseline * STEPS["gka"] / STEPS["baseline"])
    ratio = operations_per_token(replace(BASELINE, **sizes), projections=4) / operations_per_token(
        replace(GKA, **sizes), projections=1
    )
    return {"gka": own, "gka-matched": round(baseline * ratio), "baseline-matched": round(own / ratio)}.get(
        arm, baseline
    )


def _run(arm: str) -> LanguageConfig:
    """One arm at full size."""
    config = BASELINE if arm in ("baseline", "baseline-matched") else GKA
    attention, projections = ("gka", 1) if arm.startswith("gka") else ("softmax", 4)
    smaller = {
        scale: {
            "model": sizes,
            "steps": _steps(arm, steps, sizes),
            **_optimization(replace(config, **sizes), projections, changes["batch"] * sizes["context"]),
            **changes,
        }
        for scale, (sizes, changes, steps) in SCALES.items()
    }
    return LanguageConfig(
        experiment="gka-nanochat-d20",
        arm=arm,
        attention=attention,
        data="fineweb-edu",
        tokenizer="bpe",
        rows="packed",
        model=config,
        batch=BATCH,
        device_batch=16,
        steps=_steps(arm, STEPS["baseline"], {}),
        optimizer="muon",
        schedule="trapezoid",
        cooldown=0.5,
        betas=(0.8, 0.95),
        eps=1e-10,
        dtype="bfloat16",
        prompt="The capital of France is",
        eval_every=250,
        eval_rows=40 * 2**19 // BASELINE.context,
        smaller=smaller,
        **_optimization(config, projections, BATCH * BASELINE.context),
    )


ARMS = ("baseline", "gka", "gka-matched", "baseline-matched", "baseline-plain")

RECIPES = [
    Recipe(
        name="gka-nanochat-d20",
        paper="gka",
        summary="nanochat at depth 20: its attention, GKA, and both at equal operations",
        expects="mean of six CORE tasks 0.2418, and 0.2286 for GKA at 0.42 of parameters, 0.49 of operations",
        arms={arm: partial(_run, arm) for arm in ARMS},
    )
]
