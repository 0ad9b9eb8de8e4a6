"""GKA's language form beside nanochat's baseline, at equal width, parameters or operations, on few stories.

The paper's GKA has 0.42 of the baseline's parameters and half its operations, most of the first because value
embeddings are gone. Here the baseline also goes without them, and GKA is as wide as either budget allows.
All arms read the same windows of a short text about ten times, so that a train–held-out gap can open.
Five arms and five seeds took 1.4 core-hours.
"""

import math
from typing import Any

import torch
from torch import Tensor

from gkalib.experiments.gpa_characters import losses
from gkalib.experiments.study import Study

GKA = {"values": "placed"}  # as the paper prints it
# name: (variant, its options, width, value embeddings). The baseline has 1,310,856 parameters and 6.29
# million operations a token in training; GKA at 144 has 6.25 million, at 164 it has 1,304,144 parameters.
ARMS = {
    "baseline": ("softmax", {}, 128, True),
    "no-value-embeddings": ("softmax", {}, 128, False),
    "gka": ("gka", GKA, 128, False),
    "gka-operations": ("gka", GKA, 144, False),
    "gka-parameters": ("gka", GKA, 164, False),
}
RATES = {
    "baseline": 8e-3,
    "no-value-embeddings": 8e-3,
    "gka": 8e-3,
    "gka-operations": 8e-3,
    "gka-parameters": 4e-3,
}
NANOCHAT = {
    "depth": 4,
    "num_heads": 2,
    "activation": "relu2",
    "norm": "rms",
    "bias": False,
    "qk_norm": True,
    "residual_scales": True,
    "embedding_norm": True,
    "softcap": 15.0,
    "init": "nanochat",
}


def studies() -> list[Study]:
    """nanochat's baseline with and without value embeddings, and GKA at three widths."""
    return [
        Study(
            experiment="gka-stories",
            arm=arm,
            task="tinystories-pieces",
            attention=attention,
            options=options,
            model={**NANOCHAT, "dim": dim, "value_embeddings": values},
            data={"context": 128, "limit": 500_000, "tokens": 1024, "windows": 512},
            steps=700,
            warmup=35,
            batch=16,
            lr=RATES[arm],
            shared=True,
        )
        for arm, (attention, options, dim, values) in ARMS.items()
    ]


@torch.no_grad()
def measure(model: Any, learned: Any) -> dict[str, float | Tensor]:
    """Bits per byte of each held-out window and of as many training windows, and the gap between the two.

    A window's bits are divided by the mean number of bytes of a window, so that the mean over windows is the
    text's. ``gap_errors`` is the gap in its standard errors over windows; ``gap`` is in bits per byte.
    """
    parts = {"held_out": learned.held_out}
    count = len(learned.held_out[0])
    parts["training"] = learned.windows_of(learned.ids, learned.context, count)
    means, errors, each = {}, {}, {}
    for name, (inputs, labels) in parts.items():
        bits = losses(model, inputs, labels).sum(-1) / math.log(2)
        lengths = learned.byte_lengths[labels].sum(-1)
        each[name] = bits / lengths.double().mean()
        means[name] = (bits.sum() / lengths.sum()).item()
        off = (bits - means[name] * lengths) / lengths.double().mean()  # of a ratio of two sums
        errors[name] = (off.std() / math.sqrt(len(off))).item()
    gap = means["held_out"] - means["training"]
    return {
        "bits_per_byte": each["held_out"],
        "training_bits_per_byte": means["training"],
        "gap": gap,
        "gap_errors": gap / math.hypot(*errors.values()),
    }
