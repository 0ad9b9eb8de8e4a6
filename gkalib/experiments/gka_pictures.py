"""What GKA leaves out is worth on Fashion-MNIST: values, queries and keys; and what learning σ is worth.

Trained on the published 60,000 images and tested on the published 10,000. Arms share batches, test images
and, where shapes match, initial weights. Six arms and five seeds are 0.8 core-hours.
"""

from gkalib.experiments import gka_sigma
from gkalib.experiments.decisions import Contrast, difference
from gkalib.experiments.study import Study

FROZEN = {".kernel.": 0.0}
# Heads of 32 numbers. Below σ of about 2 a token keeps most of its weight; from 4 on tokens mix.
# At 74, GKA has 206,034 parameters for softmax's 205,066 and 22.8 million operations a picture for 22.3.
# name: (variant, its options, width, factors on the learning rate)
ARMS = {
    "softmax": ("softmax", {}, 64, {}),
    "vlt": ("vlt", {}, 64, {}),
    "gka": ("gka", {}, 64, {}),
    "gka-wide": ("gka", {}, 74, {}),
    "gka-frozen-1": ("gka", {"sigma": 1.0}, 64, FROZEN),
    "gka-frozen-4": ("gka", {"sigma": 4.0}, 64, FROZEN),
}
RATES = {
    "softmax": 4e-3,
    "vlt": 4e-3,
    "gka": 16e-3,
    "gka-wide": 8e-3,
    "gka-frozen-1": 16e-3,
    "gka-frozen-4": 4e-3,
}


def studies() -> list[Study]:
    """DeiT's attention, VLT, GKA at the same width and at equal cost, and GKA with fixed bandwidths."""
    return [
        Study(
            experiment="gka-pictures",
            arm=arm,
            task="fashion-mnist",
            attention=attention,
            options=options,
            model={"dim": dim, "depth": 4, "num_heads": 2, "mlp_ratio": 4.0},
            data={"train": 60_000, "test": 10_000, "published": True},
            steps=2000,
            warmup=100,
            batch=32,
            lr=RATES[arm],
            rates=rates,
            shared=True,
        )
        for arm, (attention, options, dim, rates) in ARMS.items()
    ]


CONTRASTS = (
    Contrast(
        claim="attention without values is more accurate than softmax attention",
        metric="accuracy",
        weights=difference("vlt", "softmax"),
        sign=1,
        delta=0.01,
        paper="+1.3 points",
        unit="points",
    ),
    Contrast(
        claim="GKA is behind softmax attention",
        metric="accuracy",
        weights=difference("softmax", "gka"),
        sign=1,
        delta=0.01,
        paper="0.66, 1.57 and 1.5 points",
        unit="points",
    ),
    *(
        Contrast(
            claim=f"learned bandwidths are worth something beside {arm}",
            metric="accuracy",
            weights=difference("gka", arm),
            sign=1,
            delta=0.01,
            paper="they specialize",
            unit="points",
        )
        for arm in ("gka-frozen-1", "gka-frozen-4")
    ),
    Contrast(
        claim="GKA is behind softmax attention at equal parameters and operations",
        metric="accuracy",
        weights=difference("softmax", "gka-wide"),
        sign=1,
        delta=0.01,
        paper="not compared",
        unit="points",
        primary=False,
    ),
)
CHECKS = ()


measure = gka_sigma.measure
