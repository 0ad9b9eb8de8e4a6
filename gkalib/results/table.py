"""Tables for a notebook and a terminal; of an experiment's runs, with the scale and the source of each."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from gkalib.results.store import load

FIXED = ("arm", "scale", "source", "device", "seed")
DIGITS = 4  # significant ones
DISTURBED = ", busy"  # follows the device where other programs disturbed what was timed


@final
@dataclass(frozen=True)
class Table:
    """Rows of text; a notebook shows them as HTML, a terminal in columns as wide as their widest cell.

    Args:
        header: the names of the columns.
        cells: of each row.
        kind: the class of the table, for the page's style.
    """

    header: Sequence[str]
    cells: Sequence[Sequence[str]]
    kind: str

    def __str__(self) -> str:
        lines = [self.header, *self.cells]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The table as a notebook shows it."""
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.header)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in self.cells
        )
        return f'<table class="{self.kind}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def table(experiment: str, *metrics: str, scale: str | None = None, root: Path | None = None) -> Table:
    """The runs of an experiment as a table with visible scale and source.

    Where other programs disturbed what was timed, the device says so; a metric that a run lacks is a dash.

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
    shown = metrics or known
    cells = [
        [f"{getattr(record, name)}{DISTURBED * (name == 'device' and record.busy)}" for name in FIXED]
        + [f"{record.metrics[name]:.{DIGITS}g}" if name in record.metrics else "-" for name in shown]
        for record in records
    ]
    return Table([*FIXED, *shown], cells, "gkalib-results")
