"""How a paper trains and how its recipe does: what is printed, what the recipe has, and why."""

import csv
from functools import reduce
from typing import Any

from gkalib.results.checkout import absent, repository
from gkalib.results.table import Table
from gkalib.training.recipes import recipe

HEADER = ("setting", "the paper", "here", "why")


def protocol(name: str) -> Table:
    """How a paper trains, setting by setting, beside its recipe's own values at full size.

    Args:
        name: of a recipe.

    Raises:
        ValueError: if there is no such recipe, no table of its paper, or no repository to read it from.
    """
    arms, root = recipe(name).arms, repository()
    if root is None:
        raise ValueError(f"protocol: {absent()}")
    with (root / "data/results/papers/protocol.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["recipe"] == name]
    if not rows:
        raise ValueError(f"protocol: there is no table for {name!r}")
    settings = arms[rows[0]["arm"]]().settings()
    cells = [
        (row["setting"], row["paper"] or "not printed", _ours(row["ours"], settings), row["why"])
        for row in rows
    ]
    return Table(HEADER, cells, "gkalib-protocol")


# What a value is called in its cell, where the setting's own name would not do.
SAID = {
    "steps": "{} steps",
    "batch": "{} a step",
    "device_batch": "{} at a time",
    "warmup": "{} steps of warm-up",
    "lr": "rate {}",
    "warmup_lr": "from {}",
    "final_lr": "to {}",
    "optimizer": "{}",
    "dtype": "{}",
    "data": "{}",
    "tokenizer": "{}",
    "policy": "{}",
    "switch": "CutMix with probability {}",
    "context": "context {}",
    "betas": "β {}",
    "eps": "ε {}",
    "ema": "average {}",
    "clip": "clipping {}",
    "dim": "width {}",
    "num_heads": "{} heads",
    "vocab_size": "{} symbols",
    "image_size": "{} pixels",
}


def _ours(words: str, settings: dict[str, Any]) -> str:
    """A text in quotes as it is; else the values of the settings that are named, parted by semicolons."""
    if words.startswith('"'):
        return words.strip('"')
    shown = []
    for path in words.split("; "):
        name = path.split(".")[-1]
        value = reduce(lambda part, key: part[key], path.split("."), settings)
        shown.append(SAID.get(name, f"{name.replace('_', ' ')} {{}}").format(_shown(value)))
    return ", ".join(shown)


def _shown(value: Any) -> str:
    """A value as a reader writes it."""
    if value is None:
        return "none"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_shown, value))}]"
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}" if isinstance(value, float) else value
