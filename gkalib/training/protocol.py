"""How a paper trains and how its recipe does: what is printed, what the recipe has, and why."""

import csv
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
    settings = _shown(arms[rows[0]["arm"]]().settings())
    cells = [  # "{steps} steps" stands for the recipe's own number
        (row["setting"], row["paper"] or "not printed", row["ours"].format(**settings), row["why"])
        for row in rows
    ]
    return Table(HEADER, cells, "gkalib-protocol")


def _shown(value: Any) -> Any:
    """A value as a reader writes it; of settings in settings each."""
    if isinstance(value, dict):
        return {name: _shown(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    if value is None:
        return "none"
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}" if isinstance(value, float) else value
