"""Does a bank rise at the lag of the line ends? Dickens unwrapped, wrapped at 50 and wrapped at 70.

The paper shows a bump at a lag of 69 to 70 and takes it for the text's. If it is, it moves with the width.

A bank that learns as fast as the matrices falls steeply before the model has a use for far letters, whose
gradients then vanish with their weights. So banks learn slowly here: a flat one stays below 11 nats for a
quarter of the steps. A run took 8 to 11 minutes of one core: six arms and five seeds are 5 core-hours.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from chapters.experiments.gpa_characters import CONTEXT, FLAT, LATE, bump, in_bins, losses
from gkalib.analysis import banks
from gkalib.experiments import Trained
from gkalib.experiments.study import Study

WIDTHS = {"unwrapped": None, "50": 50, "70": 70}
STARTS = {"flat": FLAT, "paper": {}}  # G(0) = 1, and the paper's 64
CRESTS = range(30, 106)  # the lags among which a bank's crest is sought
SLOW = 0.02  # what a bank's rate is to that of the matrices
BEFORE, AFTER = 15, 10  # a crest's flanks begin so many lags before it and after it


def studies() -> list[Study]:
    """A bank without other positions, from a flat start and the paper's, on text of each width."""
    return [
        Study(
            experiment="gpa-bump",
            arm=f"{start}-{width}",
            task="dickens",
            attention="gpa",
            options=options,
            model={"positions": "none"},
            data={"context": CONTEXT, "wrap": columns, "limit": 3_000_000, "windows": 256},
            steps=12_000,
            warmup=100,
            batch=8,
            lr=5e-3,
            rates={".kernel.": SLOW},
        )
        for start, options in STARTS.items()
        for width, columns in WIDTHS.items()
    ]


@torch.no_grad()
def measure(model: Any, learned: Any) -> dict[str, int | float]:
    """Where banks have their crests, what line ends cost, and what a bank without its crest costs them.

    A line end is a newline after a letter or a comma, as one that ends a paragraph seldom is, and another
    break is a space there. ``crest`` is the mean over heads of the lag at which G is highest above its
    flanks, ``height`` the mean of how much that is, and ``highest_from_…`` the bank of the head where it is
    most, in bins of four lags; ``line_end_gain`` is by how much the loss of a line end,
    given that a break comes, lies below what its frequency among breaks costs, late in a window. G is leveled
    from ``BEFORE`` lags before the width to ``AFTER`` after it by the line between these ends;
    ``leveled_contrast`` is what that adds to the loss of line ends, minus what it adds to the other breaks'.
    """
    tables = torch.cat([bank.lag_table(CONTEXT) for bank in banks(model)])
    heights = torch.stack([bump(tables, lag) for lag in CRESTS])
    crests = heights.argmax(0) + CRESTS.start
    found = {"crest": crests.float().mean().item(), "height": heights.amax(0).mean().item()}
    for number, (lag, height) in enumerate(zip(crests, heights.amax(0), strict=True), start=1):
        found |= {f"crest_head_{number}": lag.item(), f"height_head_{number}": height.item()}
    found |= in_bins("highest", tables[heights.amax(0).argmax()])
    inputs, labels = learned.held_out
    ends, others = breaks(learned.characters, inputs, labels)
    if ends.any():
        found |= _line_ends(model, learned, ends, others)
    before = losses(model, inputs, labels)
    widths = {"": learned.wrap} if learned.wrap else {"_50": 50, "_70": 70}
    for name, width in widths.items():
        gain = _leveled_at(model, width, inputs, labels) - before
        found[f"leveled_others{name}"] = gain[others].mean().item()
        if ends.any():
            found[f"leveled_ends{name}"] = gain[ends].mean().item()
            found[f"leveled_contrast{name}"] = (gain[ends].mean() - gain[others].mean()).item()
    return found


def breaks(characters: list[str], inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Which labels late in a window are line ends, and which are spaces, after a letter or a comma."""
    word = torch.tensor([one.isalpha() or one == "," for one in characters])[inputs]
    word[:, : inputs.shape[1] - LATE] = False
    return word & (labels == characters.index("\n")), word & (labels == characters.index(" "))


def _line_ends(model: Any, learned: Any, ends: Tensor, others: Tensor) -> dict[str, float]:
    """The loss of line ends given that a break comes, and by how much it is below their frequency's."""
    either = [learned.characters.index(one) for one in "\n "]
    parts = [model(one)[..., either].log_softmax(-1)[..., 0] for one in learned.held_out[0].split(8)]
    loss = -torch.cat(parts)[ends].mean()
    share = ends.sum() / (ends | others).sum()
    return {"line_end_loss": loss.item(), "line_end_gain": (-share.log() - loss).item()}


def _leveled_at(model: Any, width: int, inputs: Tensor, labels: Tensor) -> Tensor:
    """The losses with every bank leveled about a width."""
    for bank in banks(model):
        bank.lag_table = partial(leveled, type(bank).lag_table, bank, width)
    try:
        return losses(model, inputs, labels)
    finally:
        for bank in banks(model):
            del bank.lag_table


def leveled(table_of: Callable[..., Tensor], bank: Any, width: int, length: int) -> Tensor:
    """A bank's table with a straight line from before a width to after it."""
    table = table_of(bank, length).clone()
    start, stop = width - BEFORE, min(width + AFTER, length - 1)
    if stop > start:
        share = torch.linspace(0, 1, stop - start + 1)
        table[:, start : stop + 1] = table[:, start, None].lerp(table[:, stop, None], share)
    return table


FLAT_ARMS = ("flat-50", "flat-70")


def highest_studies() -> list[Study]:
    """The two arms of ``gpa-bump`` that start flat and whose text has lines, for the highest crest.

    The mean over heads cannot say, since all but one or two of eight heads have no crest, and the lag at
    which one without a crest is highest is arbitrary. Ten seeds are 3 core-hours.
    """
    return [replace(study, experiment="gpa-bump-highest") for study in studies() if study.arm in FLAT_ARMS]


def with_highest(model: Any, learned: Any) -> dict[str, int | float]:
    """What ``gpa-bump`` measures, and the crest and the height of the head whose crest is highest."""
    found = measure(model, learned)
    heads = {int(name[12:]) for name in found if name.startswith("height_head_")}
    head = max(heads, key=lambda one: found[f"height_head_{one}"])
    return found | {
        "highest_crest": found[f"crest_head_{head}"],
        "highest_height": found[f"height_head_{head}"],
    }


EXPERIMENTS = {
    "gpa-bump": Trained(studies, measure),
    "gpa-bump-highest": Trained(highest_studies, with_highest),
}
