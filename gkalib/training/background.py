"""How far runs are, seen from outside: as text, as a picture, beside what a paper prints."""

import csv
import io
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

import gkalib
from gkalib import results
from gkalib.extras import require
from gkalib.training.checkpoint import newest, step_of
from gkalib.training.config import TrainConfig
from gkalib.training.log import CURVE, duration, read_curve
from gkalib.training.record import ended

Runs = Sequence[tuple[TrainConfig, Path]]  # each with its folder
Numbers = Mapping[tuple[str, str], float]  # of a paper, by arm and metric


def steps_done(config: TrainConfig, folder: Path) -> int:
    """How many steps of a run are done; all of them once its record is written, and not before."""
    if ended(config, folder):
        return config.steps
    rows = read_curve(folder / CURVE)
    return min(int(rows[-1]["step"]), config.steps - 1) if rows else 0


def printed_numbers(name: str) -> dict[tuple[str, str], float]:
    """What a paper prints of the runs of a recipe, by arm and metric, out of ``data/results/papers``."""
    root, numbers = results.repository(), {}
    for path in sorted((root / "data" / "results" / "papers").glob("*.csv")) if root else []:
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                number = re.fullmatch(r"(?:≈ )?(\d+\.\d+)", row.get("printed") or "")
                for evidence in (row.get("evidence") or "").split("; "):
                    key = re.fullmatch(rf"train {re.escape(name)}/([\w-]+)/(\w+)", evidence)
                    if number and key:
                        numbers.setdefault(key.groups(), float(number[1]) * float(row["unit"] or 1))
    return numbers


def show(running: Callable[[], bool], runs: Runs, paper: Numbers, every: float) -> None:
    """Show the curves of runs while they are running, as a picture in a notebook, else as text."""
    if Console().is_jupyter:
        display = require("IPython.display", "a curve in a notebook")
        handle = display.display(display.Markdown("…"), display_id=True)
        live, draw = nullcontext(), lambda: handle.update(display.Image(picture(runs, paper)))
    else:
        live = Live(auto_refresh=False)
        draw = lambda: live.update(Text(progress(runs, paper)), refresh=True)  # noqa: E731
    with live:
        more = True
        while more:
            more = running()  # asked first, so that the last look is after the end
            draw()
            time.sleep(every if more else 0)


def progress(runs: Runs, paper: Numbers) -> str:
    """Where runs are, a line each: those that have ended, the one in training, the rest."""
    lines, left, speed = [], 0, 0.0
    for run, folder in runs:
        rows = [row for row in read_curve(folder / CURVE) if row.get("loss")]
        record, done = ended(run, folder), steps_done(run, folder)
        losses = [float(row["loss"]) for row in rows]
        left += run.steps - done
        if record:
            said = f"ended: {record.quality}"
        elif rows and not speed:
            speed = max(float(rows[-1]["items_per_second"]) / run.items, 1e-9)
            said = f"{done:,} of {run.steps:,} steps, {speed:.3g} steps/s, "
            said += f"{duration((run.steps - done) / speed)} left, loss {losses[-1]:.4g}"
        else:
            said = "waits"
        numbers = [f"  paper: {what} {number:.4g}" for (arm, what), number in paper.items() if arm == run.arm]
        lines.append(f"{f'{run.arm} seed {run.seed}':<26}  {said}{''.join(numbers[:1])}")
    lines.append(f"{left:,} steps left" + (f", {duration(left / speed)} at this speed" if speed else ""))
    return "\n".join(lines)


def picture(runs: Runs, paper: Numbers) -> bytes:
    """The curves of runs as PNG: the loss, and what the paper prints of it beside what is measured."""
    size = 9, 3.5 + 0.12 * len(runs)
    figure = require("matplotlib.figure", "a live curve").Figure(figsize=size, layout="constrained")
    left, right = figure.subplots(1, 2)
    arms = list(dict.fromkeys(run.arm for run, _ in runs))
    metric = next((what for arm, what in paper if arm in arms and what != "train_loss"), "val_loss")
    for run, folder in runs:
        rows, style = read_curve(folder / CURVE), {"color": f"C{arms.index(run.arm) % 10}", "lw": 1}
        for axes, column, what in ((left, "loss", "train_loss"), (right, metric, metric)):
            points = [(int(row["step"]), float(row[column])) for row in rows if row.get(column)]
            axes.plot([step for step, _ in points], [value for _, value in points], **style)
            if (run.arm, what) in paper:
                axes.axhline(paper[run.arm, what], ls="--", **style)
    for number, arm in enumerate(arms):
        left.plot([], [], color=f"C{number % 10}", label=arm)
    left.legend(frameon=False, fontsize=7)
    left.set(xlabel="step", title="training loss")
    right.set(xlabel="step", title=f"{metric}, dashed what the paper prints" if paper else metric)
    figure.suptitle(progress(runs, paper), size=7, family="monospace", ha="left", x=0.01)
    target = io.BytesIO()
    figure.savefig(target, dpi=110)
    return target.getvalue()


def train_and_kill(words: Sequence[str], folder: Path, *, step: int) -> int:
    """Train on one thread of the CPU, saving after each step, and kill the process after a step is saved.

    The signal is one that no program can catch, so the process may be writing when it ends.

    Args:
        words: of ``python -m gkalib train``: the recipe, its arm and scale.
        folder: of the run.
        step: the checkpoint to wait for; others may follow before the process has ended.

    Returns:
        The exit code: minus the signal's number.

    Raises:
        ValueError: if the process ends by itself before that step.

    References:
        Chapter 22 goes on with such a run.
    """
    options = ["--save-every", "0", "--log-every", "1", "--quiet", "--device", "cpu", "--out"]
    process = subprocess.Popen(
        [sys.executable, "-m", "gkalib", "train", *words, *options, str(folder)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment() | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},  # two round differently
    )
    while (found := newest(folder)) is None or step_of(found) < step:
        if process.poll() is not None:
            raise ValueError(f"train: {' '.join(words)} ended with {process.returncode} before step {step}")
        time.sleep(0.002)
    process.kill()
    return process.wait()


def environment() -> dict[str, str]:
    """That of a process which finds this library, installed or not."""
    root = str(Path(gkalib.__file__).parents[1])
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}
