"""The curve of a run, a CSV file whose rows belong to numbers of steps done."""

import csv
import io
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import final

FILE = "metrics.csv"
TIMINGS = ("seconds", "items_per_second")  # the columns that two equal runs do not share
PLAIN = {"step", "loss", "lr", "grad_norm", *TIMINGS}
ROWS = 200  # of a curve in a record, and the measurements


def read(path: Path) -> list[dict[str, str]]:
    """The rows of a curve; a row that an interrupted process left unfinished is none."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    rows = csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1]))
    return [row for row in rows if None not in row and None not in row.values()]


def thinned(path: Path) -> list[dict[str, str]]:
    """About ``ROWS`` rows of a curve and all its measurements, one row a step."""
    merged: dict[str, dict[str, str]] = {}
    for row in read(path):
        merged.setdefault(row["step"], dict.fromkeys(row, "")).update({k: v for k, v in row.items() if v})
    rows = list(merged.values())
    every = max(1, math.ceil(len(rows) / ROWS))
    return [
        row
        for i, row in enumerate(rows)
        if i % every == 0 or i == len(rows) - 1 or any(row[name] for name in row.keys() - PLAIN)
    ]


def replaced(path: Path, text: str) -> None:
    """Give a file a new content; it has the old one if the machine stops."""
    holder = path.with_name(f".{path.name}.writing")
    holder.write_text(text, encoding="utf-8")
    os.replace(holder, path)


@final
class Curve:
    """A curve that is open for further rows.

    Args:
        path: of the file.
        start: how many steps are done; rows after them are taken out.
    """

    def __init__(self, path: Path, start: int):
        self.path = path
        rows = read(path)
        self._open(
            [row for row in rows if row["step"].isdigit() and int(row["step"]) <= start],
            list(rows[0]) if rows else ["step"],
        )

    def row(self, step: int, numbers: Mapping[str, int | float]) -> None:
        """Add a row; it may have other columns than those before, where its own are then empty."""
        values = {"step": step, **numbers}
        new = [name for name in values if name not in self._columns]
        if new:
            self._file.close()
            self._open(read(self.path), [*self._columns, *new])
        csv.DictWriter(self._file, self._columns, lineterminator="\n", restval="").writerow(values)
        self._file.flush()

    def sync(self) -> None:
        """Wait until all rows are on the disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """End it."""
        self._file.close()

    def _open(self, rows: list[dict[str, str]], columns: list[str]) -> None:
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n", restval="")
        writer.writeheader()
        writer.writerows(rows)
        replaced(self.path, text.getvalue())
        self._columns = columns
        self._file = self.path.open("a", encoding="utf-8", newline="")
