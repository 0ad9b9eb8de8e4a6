"""Positions, a bank, or both on wrapped Dickens, as the paper has it, and a head whose bank is flat removed.

Arms on lines of 70 share windows, held-out windows and every initial weight, as banks draw none.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from chapters.experiments.gpa_characters import in_bins, losses
from gkalib.analysis import banks
from gkalib.analysis.removal import head_output, line_gaps, removal_gains, written, zeroed
from gkalib.experiments import Trained
from gkalib.experiments.loop import ROWS, Observer
from gkalib.experiments.study import Study
from gkalib.experiments.tasks import task

CONTEXT = 128
WIDTH = 70
SAME, FAST = {".kernel.": 1.0}, {".kernel.": 6.0}  # a rate of its own stops the decay of a bank
FLAT = 0.1  # a bank whose G differs by less over the context, in nats, is flat
CHARACTERS, STREAMS = 50_000, 100  # how many are generated, in how many streams at once

# name: (variant, where tokens stand, factors on the learning rate, width of a line)
ARMS = {
    "rope": ("softmax", "rope", {}, WIDTH),
    "bank": ("gpa", "none", SAME, WIDTH),
    "both": ("gpa", "rope", SAME, WIDTH),
    "bank-fast": ("gpa", "none", FAST, WIDTH),
    "both-fast": ("gpa", "rope", FAST, WIDTH),
    "rope-unwrapped": ("softmax", "rope", {}, None),
    "both-unwrapped": ("gpa", "rope", FAST, None),
}
# the best of a sweep on a seed of its own
RATES = {
    "rope": 4e-3, "bank": 8e-3, "both": 8e-3, "bank-fast": 4e-3, "both-fast": 4e-3, "rope-unwrapped": 8e-3,
    "both-unwrapped": 4e-3,
}  # fmt: skip


def studies() -> list[Study]:
    """The paper's three arms on lines of 70, the bank at its own rate and at six times it, and unwrapped."""
    return [
        Study(
            experiment="gpa-novels",
            arm=arm,
            task="dickens",
            attention=variant,
            model={"positions": positions, "dim": 128, "depth": 4},
            data={"context": CONTEXT, "wrap": wrap, "limit": 3_000_000, "windows": 512},
            steps=600,
            warmup=60,
            batch=16,
            lr=RATES.get(arm, Study.lr),
            rates=rates,
        )
        for arm, (variant, positions, rates, wrap) in ARMS.items()
    ]


def longer(steps: int) -> list[Study]:
    """Some arms on lines of 70, for more steps at rates of their own; an experiment a length."""
    rates = LONGER[steps]
    return [
        replace(study, experiment=f"gpa-novels-{steps}", steps=steps, warmup=steps // 10, lr=rates[study.arm])
        for study in studies()
        if study.arm in rates
    ]


class Curve(Observer):
    """The held-out loss on every fourth window as a model trains, and its banks in bins of four lags."""

    def __init__(self, study: Study):
        super().__init__(study)
        inputs, labels = task(study.task, **study.data).held_out
        self.windows, self.losses = (inputs[::4], labels[::4]), {}

    @torch.no_grad()
    def watch(self, step: int, model: Any) -> None:
        if step and (step % max(1, self.study.steps // ROWS) == 0 or step == self.study.steps):
            model.eval()
            self.losses[step] = losses(model, *self.windows).mean().item()
            model.train()

    def measure(self, model: Any, learned: Any) -> dict[str, int | float]:
        found = measure(model, learned)
        for layer, bank in enumerate(banks(model), start=1):
            for head, table in enumerate(bank.lag_table(CONTEXT).detach(), start=1):
                found |= in_bins(f"bank_{layer}_{head}", table)
        return found

    def rows(self, course: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [row | {"held_out_loss": self.losses[row["step"]]} for row in course]


@torch.no_grad()
def measure(model: Any, learned: Any) -> dict[str, int | float]:
    """How flat the banks are, and what it costs to remove the head with a flat bank that costs least.

    The head is chosen on every second held-out window and measured on the others: ``without_flat`` beside
    ``without_random``, the mean over all other heads, and their difference. ``gap_…`` are the newlines of
    50,000 generated characters: the commonest number of characters between two, and the share of lines with
    ten characters less than the width or fewer, with the head and without it.
    """
    found: dict[str, int | float] = {}
    if not (kernels := banks(model)):
        return found
    tables = torch.stack([bank.lag_table(CONTEXT) for bank in kernels])
    spread = tables.amax(-1) - tables.amin(-1)
    found |= {f"spread_{i}_{j}": spread[i - 1, j - 1].item() for i in (1, 2, 3, 4) for j in (1, 2, 3, 4)}
    found["flat_heads"] = int((spread < FLAT).sum())
    if not found["flat_heads"]:
        return found
    chosen, measured = ([part[first::2] for part in learned.held_out] for first in (0, 1))
    at_choice, gains = _without(model, *chosen), _without(model, *measured)
    layer, head = divmod(int(at_choice.masked_fill(spread >= FLAT, torch.inf).argmin()), spread.shape[1])
    others = gains.flatten()[torch.arange(gains.numel()) != layer * spread.shape[1] + head]
    found |= {"flat_layer": layer + 1, "flat_head": head + 1}
    found |= {"without_flat": gains[layer, head].item(), "without_random": others.mean().item()}
    found["flat_minus_random"] = found["without_flat"] - found["without_random"]
    if learned.wrap:
        found |= {f"{name}_with": value for name, value in _gaps(model, learned).items()}
        with zeroed(head_output(model, layer, head)):
            found |= {f"{name}_without": value for name, value in _gaps(model, learned).items()}
    return found


def _without(model: Any, inputs: Tensor, labels: Tensor) -> Tensor:
    """What the loss gains where each head is removed, ``[layers, heads]``."""
    return removal_gains(model, lambda: losses(model, inputs, labels).mean(), heads_only=True)["head"]


def _gaps(model: Any, learned: Any) -> dict[str, int | float]:
    """The lengths of generated lines; empty lines are left out."""
    lines = written(model, learned.held_out[0][:STREAMS], CHARACTERS)
    gaps = line_gaps(lines, learned.characters.index("\n"))
    gaps = gaps[gaps > 1]
    if not len(gaps):
        return {"gap_lines": 0}
    return {
        "gap_lines": len(gaps),
        "gap_mode": gaps.mode().values.item(),
        "gap_short": (gaps <= WIDTH - 10).float().mean().item(),
    }


# the best of a sweep of as many steps, on a seed and a part of the text that are not used again
LONGER = {
    1000: {"rope": 4e-3, "bank": 4e-3, "both": 4e-3, "both-fast": 4e-3},
    3000: {"rope": 4e-3, "bank": 4e-3, "both": 8e-3, "both-fast": 4e-3},
}

EXPERIMENTS = {
    "gpa-novels": Trained(studies, measure),
    "gpa-novels-1000": Trained(partial(longer, 1000), Curve),
    "gpa-novels-3000": Trained(partial(longer, 3000), Curve),
}
