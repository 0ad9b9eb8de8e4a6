"""What a run says while it lasts: a curve as CSV and in TensorBoard, samples, a progress bar."""

import contextlib
import csv
import io
import math
import os
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from gkalib.training.checkpoint import sync

CURVE, SAMPLES, BOARD = "metrics.csv", "samples.txt", "tensorboard"
TIMINGS = ("seconds", "items_per_second")  # the columns that two equal runs do not share
PLAIN = {"step", "loss", "lr", "grad_norm", *TIMINGS}
ROWS = 200  # of a curve in a record, and the measurements
SAMPLE = "=== step "
LINES = 10  # how often a run without a terminal says where it is


def read_curve(path: Path) -> list[dict[str, str]]:
    """The rows of a curve; a row that an interrupted process left unfinished is none."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    rows = csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1]))
    return [row for row in rows if None not in row and None not in row.values()]


def thinned(rows: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """About ``ROWS`` rows of a curve and all its measurements, one row a step."""
    columns = dict.fromkeys((name for row in rows for name in row), "")
    by_step: dict[str, dict[str, str]] = {}
    for row in rows:
        merged = by_step.setdefault(row["step"], dict(columns))
        merged.update({name: value for name, value in row.items() if value})
    merged_rows = list(by_step.values())
    every = max(1, math.ceil(len(merged_rows) / ROWS))
    return [
        row
        for i, row in enumerate(merged_rows)
        if i % every == 0 or i == len(merged_rows) - 1 or any(row[name] for name in row.keys() - PLAIN)
    ]


def write_whole(path: Path, text: str) -> None:
    """Give a file a new content; it has the old one if the machine stops."""
    temporary = path.with_name(f".{path.name}.writing")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def duration(seconds: float) -> str:
    """A time as a clock shows it, in hours, minutes and seconds."""
    return str(timedelta(seconds=round(seconds)))


@final
class Log:
    """The course of a run: its rows, and the files that keep them, which the main process writes.

    A row belongs to the number of steps that were done. A run that goes on from a checkpoint first takes out
    what came after it, so that the files are those of a run that was never interrupted.

    Args:
        folder: of the run; None keeps the rows in memory alone.
        name: of the run, beside the progress bar.
        steps: how many it has.
        start: how many of them are done.
        main: whether this process is the one that writes.
        quiet: whether to show no progress.

    Chapter 22 uses it.
    """

    def __init__(self, folder: Path | None, name: str, *, steps: int, start: int, main: bool, quiet: bool):
        self.rows: list[dict[str, str]] = []
        self._main, self._folder = main, folder if main else None
        self._steps, self._last_step = steps, start
        self._board: Any = None
        self._quiet = quiet or not main
        self._console = Console(stderr=True, soft_wrap=True, quiet=not main)
        if self._folder is not None:
            rows = read_curve(self._folder / CURVE)
            self.rows = [row for row in rows if row["step"].isdigit() and int(row["step"]) <= start]
            self._columns = list(rows[0]) if rows else ["step"]
            self._write_curve()
            self._drop_later_samples(start)
            with contextlib.suppress(ImportError):  # where it is not installed
                from torch.utils.tensorboard import SummaryWriter

                self._board = SummaryWriter(str(self._folder / BOARD), purge_step=start + 1)
        words = TextColumn("{task.description}"), TextColumn("{task.fields[words]}")
        columns = words[0], BarColumn(), MofNCompleteColumn(), words[1], TimeRemainingColumn()
        hidden = self._quiet or not self._console.is_terminal
        self._bar = Progress(*columns, console=self._console, disable=hidden)
        self._task = self._bar.add_task(name, total=steps, completed=start, words="")
        self._bar.start()

    def row(self, step: int, **numbers: int | float) -> None:
        """Add numbers to the curve; where columns are new, they are empty in the rows before."""
        if not self._main:
            return
        values = {name: str(value) for name, value in {"step": step, **numbers}.items()}
        self.rows.append(values)
        if self._folder is not None:
            if new := [name for name in values if name not in self._columns]:
                self._columns += new
                self._write_curve()
            else:
                with (self._folder / CURVE).open("a", encoding="utf-8", newline="") as file:
                    self._writer(file).writerow(values)
        if self._board is not None:
            for name, value in numbers.items():
                self._board.add_scalar(name, value, step)

    def measured(self, step: int, numbers: Mapping[str, float], sample: str | None) -> None:
        """Keep what was measured after a step and a text that the model wrote, unless they are there.

        They are where a finished run was taken up again.
        """
        rows = [row for row in self.rows if row["step"] == str(step)]
        if numbers and not any(row.get(name) for row in rows for name in numbers):
            self.row(step, **numbers)
        if sample is None or self._folder is None:
            return
        samples = self._folder / SAMPLES
        if samples.exists() and f"{SAMPLE}{step}\n" in samples.read_text(encoding="utf-8"):
            return
        with samples.open("a", encoding="utf-8") as file:
            file.write(f"{SAMPLE}{step}\n{sample.rstrip()}\n\n")
        if self._board is not None:
            self._board.add_text("sample", sample, step)

    def advance(self, step: int, **numbers: str) -> None:
        """Move the progress bar, or say a line now and then where there is no terminal."""
        words = "  ".join(f"{name} {value}" for name, value in numbers.items())
        beside: dict[str, Any] = {"words": words} if words else {}
        self._bar.update(self._task, completed=step, **beside)
        every = max(1, self._steps // LINES)
        due = step // every > self._last_step // every or step == self._steps
        if words and due and self._bar.disable and not self._quiet:
            self._last_step = step
            left = duration(float(self._bar.tasks[0].time_remaining or 0))
            self.say(f"step {step:,} of {self._steps:,}  {words}  {left} left")

    def say(self, text: str) -> None:
        """A line on the terminal, whatever else is shown."""
        self._console.print(text, highlight=False, markup=False)

    def sync(self) -> None:
        """Wait until the curve is on the disk."""
        if self._folder is not None:
            sync(self._folder / CURVE)

    def close(self) -> None:
        """End TensorBoard's file and the bar."""
        if self._board is not None:
            with contextlib.suppress(OSError):  # a full disk, which the run itself has named
                self._board.close()
        if not self._bar.disable:  # rich 14.0 would print an empty line
            self._bar.stop()

    def _writer(self, file: io.TextIOBase) -> csv.DictWriter:
        return csv.DictWriter(file, self._columns, lineterminator="\n", restval="")

    def _write_curve(self) -> None:
        assert self._folder is not None
        text = io.StringIO()
        self._writer(text).writeheader()
        self._writer(text).writerows(self.rows)
        write_whole(self._folder / CURVE, text.getvalue())

    def _drop_later_samples(self, start: int) -> None:
        """Keep of the samples what was there when so many steps were done."""
        assert self._folder is not None
        samples = self._folder / SAMPLES
        if samples.exists():
            text = samples.read_text(encoding="utf-8")
            steps = re.finditer(rf"^{SAMPLE}(\d+)$", text, re.M)
            later = [match.start() for match in steps if int(match[1]) > start]
            write_whole(samples, text[: min(later, default=len(text))])
