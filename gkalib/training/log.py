"""What a run says while it lasts: a curve as CSV and in TensorBoard, samples, a progress bar."""

import csv
import io
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from gkalib.training.config import LaunchConfig, TrainConfig
from gkalib.training.distributed import Processes

CURVE = "metrics.csv"
TIMINGS = ("seconds", "items_per_second")  # the columns that two equal runs do not share
PLAIN = {"step", "loss", "lr", "grad_norm", *TIMINGS}
ROWS = 200  # of a curve in a record, and the measurements


def read_curve(path: Path) -> list[dict[str, str]]:
    """The rows of a curve; a row that an interrupted process left unfinished is none."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    rows = csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1]))
    return [row for row in rows if None not in row and None not in row.values()]


def thinned_curve(path: Path) -> list[dict[str, str]]:
    """About ``ROWS`` rows of a curve and all its measurements, one row a step."""
    merged: dict[str, dict[str, str]] = {}
    for row in read_curve(path):
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
        rows = read_curve(path)
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
            self._open(read_curve(self.path), [*self._columns, *new])
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


SAMPLES, BOARD = "samples.txt", "tensorboard"
SAMPLE = "=== step "
LINES = 10  # how often a run without a terminal says where it is


@final
class Log:
    """The files in which the course of a run is kept; processes other than the main one write nothing.

    A row belongs to the number of steps that were done. A run that goes on from a checkpoint first takes out
    what came after it, so that the files are those of a run that was never interrupted.

    Args:
        folder: of the run.
        run: its settings.
        processes: the processes.
        launch: whether to show progress.
        start: how many steps are done.

    Chapter 20 uses it.
    """

    def __init__(
        self, folder: Path, run: TrainConfig, processes: Processes, launch: LaunchConfig, start: int
    ):
        self.folder, self.run, self.main = folder, run, processes.main
        self._start, self._began = start, time.monotonic()
        self._curve: Curve | None = None
        self._board: Any = None
        self._bar: Any = None
        self._task: Any = None
        self._lines = False
        if self.main:
            self._take_back(start)
            self._board = _board(folder / BOARD, start)
            if not launch.quiet:
                self._show(start)

    def row(self, step: int, **numbers: int | float) -> None:
        """Add numbers to the curve; a row may have other columns than those before."""
        if not self.main:
            return
        assert self._curve is not None
        self._curve.row(step, numbers)
        if self._board is not None:
            for name, value in numbers.items():
                self._board.add_scalar(name, value, step)

    def sample(self, step: int, text: str) -> None:
        """Keep a text that the model wrote, the first of a step."""
        if not self.main:
            return
        samples = self.folder / SAMPLES
        if samples.exists() and f"{SAMPLE}{step}\n" in samples.read_text(encoding="utf-8"):
            return  # a finished run was taken up again
        with samples.open("a", encoding="utf-8") as file:
            file.write(f"{SAMPLE}{step}\n{text.rstrip()}\n\n")
        if self._board is not None:
            self._board.add_text("sample", text, step)

    def advance(self, step: int, **shown: str) -> None:
        """Move the progress bar, or say a line now and then where there is no terminal."""
        said = "  ".join(f"{name} {value}" for name, value in shown.items())
        if self._bar is not None:
            self._bar.update(self._task, completed=step, **({"said": said} if said else {}))
        elif self._lines and said:
            every = max(1, self.run.steps // LINES)
            if step // every > self._said // every or step == self.run.steps:
                self._said = step
                self.say(f"step {step:,} of {self.run.steps:,}  {said}  {self._left(step)} left")

    def say(self, text: str) -> None:
        """A line on the terminal, whatever else is shown."""
        if self.main:
            (self._bar.console if self._bar is not None else _console()).print(
                text, highlight=False, markup=False
            )

    def sync(self) -> None:
        """Wait until the curve is on the disk."""
        if self._curve is not None:
            self._curve.sync()

    def close(self) -> None:
        """End the files and the bar."""
        for one in (self._curve, self._board):
            if one is not None:
                one.close()
        if self._bar is not None:
            self._bar.stop()
        self._curve = self._board = self._bar = None

    def _take_back(self, start: int) -> None:
        """Keep of the curve and the samples what was there when ``start`` steps were done."""
        self._curve = Curve(self.folder / CURVE, start)
        samples = self.folder / SAMPLES
        if samples.exists():
            kept = ""
            for part in samples.read_text(encoding="utf-8").split(f"\n{SAMPLE}"):
                step = part.removeprefix(SAMPLE).split("\n", 1)[0]
                if step.isdigit() and int(step) <= start:
                    kept += f"{SAMPLE}{part.removeprefix(SAMPLE).rstrip()}\n\n"
            replaced(samples, kept)

    def _show(self, start: int) -> None:
        console = _console()
        self._said = start
        self._lines = not console.is_terminal
        if self._lines:
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[said]}"),
            TimeRemainingColumn(),
            console=console,
        )
        name = f"{self.run.recipe} {self.run.arm}"
        self._task = self._bar.add_task(name, total=self.run.steps, completed=start, said="")
        self._bar.start()

    def _left(self, step: int) -> str:
        done = max(1, step - self._start)
        seconds = (time.monotonic() - self._began) / done * (self.run.steps - step)
        return f"{seconds / 60:.0f} min" if seconds >= 100 else f"{seconds:.0f} s"


def _console() -> Any:
    from rich.console import Console

    return Console(stderr=True, soft_wrap=True)


def _board(folder: Path, start: int) -> Any:
    """TensorBoard's writer; None where it is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=start + 1)
