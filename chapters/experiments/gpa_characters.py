"""Rotary positions, a kernel bank, or both; banks on text with line ends and without: for chapter 27."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from gkalib.analysis import banks, capture_attention
from gkalib.analysis.removal import removal_gains
from gkalib.experiments import Trained
from gkalib.experiments.study import Study
from gkalib.models import gpt

CONTEXT = 128
LATE = 64  # the characters at a window's end, over which losses of long contexts and of newlines are taken
FAR = 32  # the lags from which a bank's shape is taken away, and the weight there counted
FLAT = {"sigma": 0.125}  # G(0) = 1 at the start, where the paper has 64

# name: (variant, its options, where tokens stand, text, width of a line)
ADDRESSES, NOVELS = "state-of-the-union", "dickens"
ARMS = {
    "rope": ("softmax", {}, "rope", ADDRESSES, 70),
    "bank": ("gpa", {}, "none", ADDRESSES, 70),
    "bank-rope": ("gpa", {}, "rope", ADDRESSES, 70),
    "flat-70": ("gpa", FLAT, "none", ADDRESSES, 70),
    "flat-unwrapped": ("gpa", FLAT, "none", ADDRESSES, None),
    "dickens-70": ("gpa", FLAT, "none", NOVELS, 70),
    "dickens-unwrapped": ("gpa", FLAT, "none", NOVELS, None),
}


def studies() -> list[Study]:
    """The paper's three arms from its start, then banks from a flat start on two texts, wrapped and not."""
    return [
        Study(
            experiment="gpa-characters",
            arm=arm,
            task=text,
            attention=variant,
            options=options,
            model={"positions": positions},
            data={"context": CONTEXT, "wrap": wrap} | ({"limit": 3_000_000} if text == NOVELS else {}),
            steps=700,
            batch=8,
            lr=5e-3,
            rates={".kernel.": 6.0},
        )
        for arm, (variant, options, positions, text, wrap) in ARMS.items()
    ]


@torch.no_grad()
def measure(model: Any, learned: Any) -> dict[str, float]:
    """The loss of reading on, heads without their bank and without all, and the shape of the banks."""
    metrics = _longer(model, learned) | _without(model, learned)
    metrics |= _newlines(model, learned) | _gaps(learned.ids == learned.characters.index("\n"))
    if kernels := banks(model):
        metrics |= _shapes(torch.stack([bank.lag_table(CONTEXT) for bank in kernels]))
        metrics |= _far(model, learned)
    return metrics


def bump(tables: Tensor, width: int) -> Tensor:
    """How far G about the lag ``width`` is above its flanks 15 to 25 before and 10 to 20 after, per head."""
    near = tables[..., width - 10 : width + 3].mean(-1)
    before, after = tables[..., width - 25 : width - 15], tables[..., width + 10 : width + 20]
    return near - (before.mean(-1) + after.mean(-1)) / 2


def _shapes(tables: Tensor) -> dict[str, float]:
    """G in bins of four lags: the mean over a layer's heads, and the head of the greatest bump."""
    heads = tables.flatten(0, 1)
    bumps = {width: bump(heads, width) for width in (50, 70)}
    metrics = {f"bump_{width}": values.max().item() for width, values in bumps.items()}
    most = heads[torch.stack(list(bumps.values())).amax(0).argmax()]
    shapes = {f"layer_{layer}": table.mean(0) for layer, table in enumerate(tables, 1)} | {"head": most}
    for name, shape in shapes.items():
        metrics |= {f"{name}_at_0": shape[0].item()} | in_bins(name, shape)
    return metrics


def in_bins(name: str, table: Tensor) -> dict[str, float]:
    """The means of a head's G over bins of four lags, each under the name and its first lag."""
    means = table.unflatten(0, (-1, 4)).mean(-1).tolist()
    return {f"{name}_from_{4 * number}": mean for number, mean in enumerate(means)}


def _far(model: Any, learned: Any) -> dict[str, float]:
    """The weight at far lags, late in a window, and what the losses gain where banks are constant there."""
    inputs, labels = learned.held_out
    captured = capture_attention(model, inputs[:16])
    place = torch.arange(CONTEXT)
    far = place[:, None] - place >= FAR
    weight = torch.stack([(layer.weights * far)[:, :, -LATE:].sum(-1).mean((0, 2)) for layer in captured])
    metrics = {"far_weight": weight.mean().item(), "far_weight_most": weight.max().item()}
    before = losses(model, inputs, labels)
    for bank in banks(model):
        bank.lag_table = partial(_leveled, type(bank).lag_table, bank)
    gain = losses(model, inputs, labels) - before
    for bank in banks(model):
        del bank.lag_table
    newline = labels == learned.characters.index("\n")
    newline[:, : CONTEXT - LATE] = False
    if newline.any():
        metrics["leveled_newline"] = gain[newline].mean().item()
    return metrics | {"leveled": gain.mean().item()}


def _leveled(table_of: Callable[..., Tensor], bank: Any, length: int) -> Tensor:
    """A bank's table with the mean of all far lags at each of them."""
    table = table_of(bank, length)
    return torch.cat([table[:, :FAR], table[:, FAR:].mean(-1, keepdim=True).expand_as(table[:, FAR:])], dim=1)


def losses(model: Any, inputs: Tensor, labels: Tensor) -> Tensor:
    """The loss of every character, ``[b n]``."""
    batches = zip(inputs.split(8), labels.split(8), strict=True)
    return torch.cat([cross_entropy(model(ids).mT, after, reduction="none") for ids, after in batches])


def _longer(model: Any, learned: Any) -> dict[str, float]:
    """The same characters read after at most one context, and after two or four."""
    longer = gpt(replace(model.config, context=4 * CONTEXT), attention=[type(b.attn) for b in model.blocks])
    longer.load_state_dict(model.state_dict())
    inputs, labels = learned.windows_of(learned.rest, 4 * CONTEXT, 48)
    metrics = {}
    for times in (2, 4):
        end, start = times * CONTEXT, (times - 1) * CONTEXT
        read = {"short": start, "long": 0}
        for name, begin in read.items():
            late = losses(longer, inputs[:, begin:end], labels[:, begin:end])[:, -LATE:]
            metrics[f"{name}_{times}x"] = late.mean().item()
    return metrics


def _newlines(model: Any, learned: Any) -> dict[str, float]:
    """The loss of newlines late in a window, where there are any; it includes guessing that a word ends."""
    inputs, labels = learned.held_out
    newline = labels == learned.characters.index("\n")
    newline[:, : CONTEXT - LATE] = False
    return {"newline_loss": losses(model, inputs, labels)[newline].mean().item()} if newline.any() else {}


def _gaps(newline: Tensor) -> dict[str, float]:
    """How often a newline follows one at a lag, in bins of four lags, and the commonest gap above 1."""
    where = newline.nonzero()[:, 0]
    gaps = where.diff()
    lags = range(CONTEXT)
    rates = torch.stack([newline[where[where < len(newline) - lag] + lag].double().mean() for lag in lags])
    metrics = {"newlines": newline.double().mean().item(), "newline_gap": gaps[gaps > 1].mode().values.item()}
    metrics |= {"newline_at_1": rates[1].item(), "newline_gap_mean": gaps[gaps > 1].double().mean().item()}
    bins = zip(range(0, CONTEXT, 4), rates.unflatten(0, (-1, 4)).mean(-1).tolist(), strict=True)
    return metrics | {f"newline_from_{start}": rate for start, rate in bins}


def _without(model: Any, learned: Any) -> dict[str, float]:
    """What the loss gains, head by head, from a zero bank and from no output of the head."""
    inputs, labels = (part[::4] for part in learned.held_out)
    found = removal_gains(model, lambda: losses(model, inputs, labels).mean())
    return {
        f"without_{name}_{layer}_{head}": gain
        for name, gains in found.items()
        for layer, row in enumerate(gains.tolist(), 1)
        for head, gain in enumerate(row, 1)
    }


EXPERIMENTS = {"gpa-characters": Trained(studies, measure)}
