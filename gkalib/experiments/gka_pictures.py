"""What GKA leaves out is worth on Fashion-MNIST: values, queries and keys; and what learning σ is worth.

Trained on the published 60,000 images and tested on the published 10,000. Arms share batches, test images
and, where shapes match, initial weights. Six arms and five seeds are 0.8 core-hours.
"""

from gkalib.experiments import gka_sigma
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


measure = gka_sigma.measure
