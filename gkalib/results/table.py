"""Runs of an experiment as a table that says of each number what it is: its scale and its source."""

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import final

from gkalib.results.record import Record
from gkalib.results.store import load

FIXED = ("arm", "scale", "source", "device", "seed")
DIGITS = 4  # significant ones
DISTURBED = ", busy"  # follows the device where other programs disturbed what was timed


def table(experiment: str, *metrics: str, scale: str | None = None, root: Path | None = None) -> "Table":
    """The runs of an experiment as a table with visible scale and source.

    Args:
        experiment: its name.
        metrics: the columns to show, in order; every metric of any run where none is given.
        scale: keep only runs of this scale.
        root: the store; ``folder()`` where not given.

    Raises:
        ValueError: if there is no such run, or no run has one of the metrics.
    """
    records = load(experiment, scale=scale, root=root)
    known = list(dict.fromkeys(name for record in records for name in record.metrics))
    for name in metrics:
        if name not in known:
            raise ValueError(
                f"results: no run of {experiment!r} has a metric {name!r}. They have: {', '.join(known)}"
            )
    return Table(tuple(records), metrics or tuple(known))


def as_text(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of text in columns as wide as their widest cell."""
    lines = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def as_html(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, kind: str, kinds: Iterable[str] = ()
) -> str:
    """A table of text as a notebook shows it.

    Args:
        header: the names of the columns.
        rows: their cells.
        kind: the class of the table, for the page's style.
        kinds: the class of each row, where rows have one.
    """
    head = "".join(f"<th>{html.escape(name)}</th>" for name in header)
    classes = (f' class="{one}"' for one in kinds) if kinds else repeat("")
    body = "".join(
        f"<tr{given}>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row, given in zip(rows, classes, strict=False)
    )
    return f'<table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


@final
@dataclass(frozen=True)
class Table:
    """Records as rows; a notebook shows it as HTML, a terminal as text.

    Args:
        records: the rows.
        metrics: the columns after arm, scale, source, device and seed.
    """

    records: tuple[Record, ...]
    metrics: tuple[str, ...]

    @property
    def header(self) -> list[str]:
        """The names of the columns."""
        return [*FIXED, *self.metrics]

    @property
    def cells(self) -> list[list[str]]:
        """The rows as text; a metric that a run does not have is a dash."""
        return [
            [f"{getattr(record, name)}{DISTURBED * (name == 'device' and record.busy)}" for name in FIXED]
            + [
                f"{record.metrics[name]:.{DIGITS}g}" if name in record.metrics else "-"
                for name in self.metrics
            ]
            for record in self.records
        ]

    def __str__(self) -> str:
        return as_text(self.header, self.cells)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The table as a notebook shows it."""
        kinds = [f"gkalib-{record.source}" for record in self.records]
        return as_html(self.header, self.cells, kind="gkalib-results", kinds=kinds)
