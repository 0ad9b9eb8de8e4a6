"""A table of the page from rows of cells, and the rows of a CSV file."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from docutils import nodes


def read(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def table(header: Sequence[str], rows: Iterable[Sequence[str | nodes.entry]], *classes: str) -> nodes.table:
    """A table whose cells are texts or entries; its classes follow ``gk-ledger``."""

    def row(cells: Sequence[str | nodes.entry]) -> nodes.row:
        return nodes.row("", *(_entry(cell) if isinstance(cell, str) else cell for cell in cells))

    group = nodes.tgroup(cols=len(header))
    group += [nodes.colspec(colwidth=1) for _ in header]
    group += [nodes.thead("", row(header)), nodes.tbody("", *map(row, rows))]
    return nodes.table("", group, classes=["gk-ledger", *classes])


def _entry(text: str) -> nodes.entry:
    return nodes.entry("", nodes.paragraph("", text))
