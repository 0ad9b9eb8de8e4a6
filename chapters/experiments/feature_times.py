"""What attention over features costs against its length on a CPU: seconds, beside those of softmax attention.

Chapter 11 reads the records.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from gkalib.bench.timing import processor_seconds
from gkalib.experiments.runner import Measured, Numbers
from gkalib.kernels import Elu, PositiveRandom
from gkalib.smoothing import smooth

LENGTHS, HEADS, WIDTH, FEATURES, RUNS = (128, 256, 512, 1024, 2048, 4096, 8192), 4, 64, 256, 5


def stored(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Softmax attention that stores its weights."""
    return (query @ key.mT / WIDTH**0.5).softmax(-1) @ value


ARMS: dict[str, Callable[..., Tensor]] = {
    "stored": stored,
    "one-pass": scaled_dot_product_attention,
    "elu": partial(smooth, kernel=Elu(), method="linear"),
    "positive": partial(smooth, kernel=PositiveRandom(WIDTH, FEATURES, seed=0), method="linear"),
}


@torch.no_grad()
def seconds(arm: str, seed: int) -> Numbers:
    """Processor time of a forward pass in float32, the least of some, by the number of tokens."""
    metrics = {}
    for length in LENGTHS:
        call = partial(ARMS[arm], *torch.randn(3, 1, HEADS, length, WIDTH))
        metrics[f"seconds_{length}"] = processor_seconds(call, RUNS)
    return metrics, []


MEASURED = Measured(
    name="feature-times",
    arms={name: partial(seconds, name) for name in ARMS},
    recipe=lambda arm: {
        "arm": arm,
        "lengths": list(LENGTHS),
        "heads": HEADS,
        "width": WIDTH,
        "features": FEATURES,
        "threads": 1,
    },
    threads=1,
)

EXPERIMENTS = {MEASURED.name: MEASURED}
