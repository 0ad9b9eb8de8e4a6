"""A Gaussian or the exponential dot product in a decoder of stories: two temperatures, two positions.

The article's γ = 1/√d makes the dot product's factor 2/√d: "rbf" is at the temperature of "dot-double", and
"rbf-half" at that of "dot". Arms share windows, held-out windows and initial weights.
Each arm has the learning rate that its sweep found. Ten arms and five seeds are 1.2 core-hours.
"""

from gkalib.experiments.rbf_arms import HALF, measure
from gkalib.experiments.study import Study

__all__ = ["measure", "studies"]

KERNELS = {
    "dot": ("softmax", {}),
    "dot-double": ("softmax", {"scale": 4 * HALF}),
    "rbf": ("rbf", {}),
    "rbf-half": ("rbf", {"gamma": HALF}),
}
POSITIONS = ("rope", "susie")
RATES = {
    "dot-rope": 8e-3,
    "dot-susie": 32e-3,
    "dot-double-rope": 8e-3,
    "dot-double-susie": 16e-3,
    "rbf-rope": 32e-3,
    "rbf-susie": 16e-3,
    "rbf-half-rope": 16e-3,
    "rbf-half-susie": 32e-3,
    "dot-rope-register": 8e-3,
    "rbf-susie-register": 16e-3,
}


def studies() -> list[Study]:
    """Each kernel with each position, and a register for the article's two models."""
    arms = [(f"{kernel}-{position}", kernel, position, 0) for kernel in KERNELS for position in POSITIONS]
    arms += [("dot-rope-register", "dot", "rope", 1), ("rbf-susie-register", "rbf", "susie", 1)]
    return [
        Study(
            experiment="rbf-stories",
            arm=arm,
            task="tinystories",
            attention=KERNELS[kernel][0],
            options=KERNELS[kernel][1],
            model={"positions": position, "registers": registers},
            data={"context": 128, "windows": 512},
            steps=1000,
            warmup=50,
            batch=8,
            lr=RATES[arm],
            shared=True,
        )
        for arm, kernel, position, registers in arms
    ]
