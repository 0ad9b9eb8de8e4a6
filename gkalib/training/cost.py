"""What runs cost: parameters and operations, counted, and hours on a card, between two bounds or measured."""

import re
from dataclasses import dataclass
from typing import final

import torch

from gkalib import results
from gkalib.models import Count, count
from gkalib.training.config import LanguageConfig, TrainConfig, VisionConfig

# How often a block reads or writes vectors of its token's width, norms fused with the sums before them: 2 for
# the norm, 4 for query, key and value, 4 for attention, 2 for its projection, 4 for sum and norm, and for the
# perceptron 5, 8, 5 and 3; and the backward pass twice that.
TRAFFIC = 3 * 37
LOGITS = 6  # how often each logit is read or written: by its product, the loss, and both backward
STATE = 32  # bytes of a parameter that a step reads or writes: itself, its gradient, its moments
# Of seven RTX 5090 in table 4 of the GKA paper: which share of the bound a wide model reaches, and how long a
# block of a narrow one takes at least, however little it computes. A test has the throughputs beside these.
SHARE, BLOCK_SECONDS = 0.57, 3.5e-3


@final
@dataclass(frozen=True)
class Card:
    """What a graphics card does in a second, in units of 10¹², by its data sheet.

    Args:
        half: operations of dense matrix products of 16 bits that are added in float32.
        single: those in float32.
        memory: bytes.
        bfloat16: whether it multiplies these, and not float16 alone.
    """

    half: int | float
    single: int | float
    memory: int | float
    bfloat16: bool = True


CARDS = {
    "H200": Card(989, 67, 4.8),
    "H100": Card(989, 67, 3.35),
    "A100": Card(312, 19.5, 2.04),
    "RTX 5090": Card(209.5, 104.8, 1.79),
    "RTX 4090": Card(165.2, 82.6, 1.01),
    "L4": Card(121, 30.3, 0.3),
    "T4": Card(65, 8.1, 0.32, bfloat16=False),
}
"""By the name that PyTorch has for them, or a part of it."""


@final
@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a run costs.

    Args:
        count: of the model.
        operations: floating-point operations of all training steps, in GKA's convention for images (three
            forward passes of matrix products) and nanochat's for tokens.
        run: every setting.
    """

    count: Count
    operations: float
    run: VisionConfig | LanguageConfig

    @property
    def items(self) -> int:
        """Images or tokens that training reads."""
        return self.run.steps * self.run.items

    def hours(self, card: str = "H100", gpus: int = 1) -> tuple[float, float]:
        r"""Hours on so many cards: what no program can beat, and what is to be expected.

        $$t \ge \max\Big(\frac{\text{operations}}{\text{products per second}},
        \frac{\text{bytes of activations, logits and parameters}}{\text{bytes per second}}\Big)$$

        The products are those of the run's own type. The second number is t / 0.57 or, where that is longer,
        3.5 ms a block and pass, as on the cards of the GKA paper. Loading, measuring and what the cards send
        each other are in neither.

        Args:
            card: one of ``CARDS``.
            gpus: how many share a step.

        Raises:
            ValueError: if the card is not known, or multiplies no numbers of the run's type.
        """
        if card not in CARDS:
            raise ValueError(f"launch: no card {card!r}. Known: {', '.join(CARDS)}")
        rates, run = CARDS[card], self.run
        if run.dtype == "bfloat16" and not rates.bfloat16:
            raise ValueError(f"launch: a {card} multiplies no bfloat16; give --dtype float16")
        width, depth = run.model.dim, run.model.depth
        size = 4 if run.dtype == "float32" else 2
        if isinstance(run, LanguageConfig):
            tokens, logits = run.items, LOGITS * run.model.vocab_size
        else:
            tokens, logits = run.batch * run.model.length, 0
        activations = tokens * (TRAFFIC * depth * width + logits) * size / gpus
        moved = (activations + STATE * self.count.parameters) / rates.memory / 1e12
        rate = rates.single if run.dtype == "float32" else rates.half
        products = self.operations / run.steps / gpus / rate / 1e12
        floor = max(products, moved)
        passes = -(-run.parts // gpus)
        expected = max(floor / SHARE, passes * depth * BLOCK_SECONDS)
        return run.steps * floor / 3600, run.steps * expected / 3600


def cost(config: TrainConfig) -> Cost:
    """What a run costs, counted on its model without computing anything."""
    with torch.device("meta"):
        model = config.build()
    if isinstance(config, VisionConfig):
        side = config.model.image_size
        counts = count(model, torch.empty(1, config.model.channels, side, side, device="meta"))
        per_item = 3 * counts.flops
    else:
        assert isinstance(config, LanguageConfig)
        tokens = config.model.context
        counts = count(model, torch.empty(1, tokens, dtype=torch.long, device="meta"))
        per_item = counts.flops_per_token or 3 * counts.flops // tokens
    return Cost(count=counts, operations=float(config.steps * config.items * per_item), run=config)


def measured_hours(config: TrainConfig, card: str, gpus: int) -> float | None:
    """Hours of the newest recorded run with these settings on so many such cards; None without one."""
    try:
        records = results.load(config.experiment, scale=config.scale, arm=config.arm)
    except ValueError:
        return None
    for record in records:
        several = re.match(r"(\d+) x ", record.device)
        same = int(several[1] if several else 1) == gpus and record.recipe == config.recorded()
        if same and card in record.device:
            return record.wall_seconds / 3600
    return None
