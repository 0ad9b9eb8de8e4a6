"""A run that a notebook launches: what it costs, what it lacks here, a process that outlives the kernel."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, final

import torch
from filelock import FileLock, Timeout

import gkalib
from gkalib import results
from gkalib.data import registry
from gkalib.data.images import IMAGE_SETS, is_own_folder
from gkalib.data.text import TEXTS
from gkalib.data.tokens import LARGE, is_own_text
from gkalib.training.checkpoint import KEPT, newest, step_of
from gkalib.training.config import LaunchConfig, TrainConfig, VisionConfig
from gkalib.training.distributed import LOCK, read_holder, run_folder, write_holder
from gkalib.training.launch import chosen_run, cost, device_of, plan, recipe_arm
from gkalib.training.log import CURVE, read_curve
from gkalib.training.recipes import recipe

try:
    import fcntl
except ImportError:  # on Windows, where a run is seen once it has locked its folder
    fcntl = None

PRINTED = "launch.log"  # what the process prints
PATIENCE = 60.0  # seconds between the last step and the record
SAVE_EVERY = (
    20  # seconds between checkpoints of a run below full size, which is killed within minutes if at all
)
BYTES = 16  # a parameter in float32, its two moments and its average


@final
class Launch:
    """A run of a recipe: its plan and what is missing here, as text; its process, once it is started.

    Args:
        config: every setting of the run.
        words: of the command line, which make it.
        device: ``"cpu"`` or ``"cuda"``.
        folder: of the run.
    """

    def __init__(self, config: TrainConfig, words: Sequence[str], *, device: str, folder: Path):
        self.config, self.device, self.folder = config, device, folder.absolute()
        self.command = [sys.executable, "-m", "gkalib", "train", *words]
        self._process: subprocess.Popen | None = None

    @property
    def missing(self) -> list[str]:
        """What the run lacks on this machine, a line each with what to type or to do."""
        config, found = self.config, []
        name = config.data.replace("-", "_")
        if isinstance(config, VisionConfig):
            known, own, kind = config.data in IMAGE_SETS, is_own_folder(config.data), "folder of images"
        else:
            known = config.data.replace("_", "-") in (*TEXTS, *LARGE)
            own, kind = is_own_text(config.data), "text file"
        if known and name in registry.DATASETS and not registry.ready(name):
            found.append(f"data: {name} is not here. Type: python -m gkalib data get {name}")
        if not known and not own:
            found.append(f"data: there is no data set and no {kind} called {config.data!r}")
        estimate = cost(config)
        if self.device == "cuda" and not torch.cuda.is_available():
            found.append(
                "device: there is no GPU here. Type one of the lines above on a machine that has one, or "
                "launch with scale='reduced'"
            )
        elif self.device == "cpu" and config.scale == "full":
            found.append(
                f"device: at full size this run takes {estimate.hours:.2g} hours of an H100, and a CPU will "
                "not end it. Launch with scale='reduced'"
            )
        state = BYTES * estimate.count.parameters
        if (
            self.device == "cuda"
            and torch.cuda.is_available()
            and state > (free := torch.cuda.mem_get_info()[0])
        ):
            found.append(
                f"memory: its state alone takes {_size(state)}, and {_size(free)} of the GPU are free"
            )
        place = next(path for path in (self.folder, *self.folder.parents) if path.exists())
        if (KEPT + 1) * state > (free := shutil.disk_usage(place).free):
            found.append(
                f"disk: checkpoints take {_size((KEPT + 1) * state)}, and {_size(free)} are free in {place}. "
                "Choose another folder with out="
            )
        return found

    @property
    def recorded(self) -> list[str]:
        """What the newest record of each seed of its arm and scale says, a line each."""
        try:
            records = results.load(self.config.experiment, scale=self.config.scale, arm=self.config.arm)
        except ValueError:  # there is none
            return []
        by_seed = {record.seed: record for record in reversed(records)}
        return [f"seed {seed}: {by_seed[seed].quality}" for seed in sorted(by_seed)]

    @property
    def step(self) -> int:
        """How many steps are done, as its curve has them."""
        rows = read_curve(self.folder / CURVE)
        return int(rows[-1]["step"]) if rows else 0

    @property
    def running(self) -> bool:
        """Whether a process trains in its folder, this one's or another, or is about to begin or to end.

        Its first minutes may go into imports and data: the folder is not locked yet then, but what it prints
        to is.
        """
        if self._process is not None and self._process.poll() is None:
            return True
        if _is_printed_to(self.folder / PRINTED):
            return True
        if not (self.folder / LOCK).exists():
            return False
        try:
            with FileLock(self.folder / LOCK, blocking=False):
                curve = self.folder / CURVE
                if not self._done or self._has_ended:
                    return False
                return abs(time.time() - curve.stat().st_mtime) < PATIENCE  # a clock may have been set back
        except Timeout:
            return True

    @property
    def _done(self) -> bool:
        """Whether its last step is done."""
        return self.step >= self.config.steps

    @property
    def _has_ended(self) -> bool:
        """Whether the last line that was printed is that of its record."""
        config, printed = self.config, self.folder / PRINTED
        lines = printed.read_text(encoding="utf-8", errors="replace").splitlines() if printed.exists() else []
        name = f"{config.experiment} {config.arm}-{config.scale}-s{config.seed}-"
        return bool(lines) and lines[-1].startswith(name)

    @property
    def state(self) -> str:
        """``not started``, ``running``, ``stopped`` or ``finished``."""
        if self.running:
            return "running"
        if self._done and (self._has_ended or not (self.folder / PRINTED).exists()):
            return "finished"
        return "stopped" if (self.folder / PRINTED).exists() else "not started"

    def start(self) -> None:
        """Start it in a process of its own, or go on where it was stopped; nothing, while it runs.

        Its record goes to ``data/results``, what it prints to ``launch.log`` in its folder.

        Raises:
            ValueError: if something is missing; the message says what to do.
        """
        if self.running:
            return
        if missing := self.missing:
            raise ValueError("launch: the run cannot start here.\n" + "\n".join(missing))
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / PRINTED).open("ab") as printed:
            while not _lock(printed):  # another kernel has just started it, or is looking whether it runs
                if self.running:
                    return
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                env=_environment(),
                start_new_session=True,
            )
        write_holder(self.folder, self._process.pid)

    def stop(self) -> None:
        """Ask it to save and to end, as SIGTERM does; ``start`` goes on from there.

        Raises:
            ValueError: if it runs, but not in a process of this machine that is the run's for certain.
        """
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
        elif self.running:
            words, process = read_holder(self.folder)
            if process is None:
                raise ValueError(
                    f"launch: {self.folder} is held by {words}, and no process here is that one for certain: "
                    "stop it where it was started"
                )
            os.kill(process, signal.SIGTERM)

    def watch(self) -> None:
        """Show a progress bar until it ends; an interrupt ends the bar, not the run.

        Raises:
            ValueError: if it ends before its last step; the message is the end of what it printed.
        """
        from rich.progress import Progress

        with Progress() as bar:
            task = bar.add_task(f"{self.config.experiment} {self.config.arm}", total=self.config.steps)
            running = True
            while running:
                running = self.running  # asked first, so that the last look is after its end
                bar.update(task, completed=self.step)
                time.sleep(0.5 if running else 0)
        if self.state != "finished":
            printed = (self.folder / PRINTED).read_text(encoding="utf-8", errors="replace")
            raise ValueError("launch: the run has stopped.\n" + "\n".join(printed.splitlines()[-10:]))

    def __repr__(self) -> str:
        lines = [plan(recipe(self.config.experiment), self.config, LaunchConfig(device=self.device))]
        lines += [f"missing      {line}" for line in self.missing] or ["missing      nothing"]
        lines += [f"recorded     {line}" for line in self.recorded] or ["recorded     no run"]
        lines.append(f"state        {self.state}, {self.step:,} of {self.config.steps:,} steps")
        return "\n".join([*lines, f"folder       {_short(self.folder)}"])


def launch(
    name: str,
    arm: str | None = None,
    *,
    scale: str = "full",
    seed: int = 0,
    device: str | None = None,
    out: str | Path | None = None,
    settings: Sequence[str] = (),
    start: bool = False,
) -> Launch:
    """What a run costs, how to start it anywhere, and what it lacks here; with ``start`` it is started.

    A run that is started trains in a process of its own, which a kernel's end does not stop. Launched again
    with the same arguments, it is found again, and goes on if it was stopped: after ``stop`` from the step
    where it was, after a crash from its last checkpoint.

    Args:
        name: of the recipe.
        arm: of the recipe; its first where not given.
        scale: ``"full"``, ``"reduced"`` or ``"smoke"``.
        seed: of the run.
        device: ``"cpu"`` or ``"cuda"``; None takes the GPU where there is one.
        out: the run's folder; one below $GKALIB_RUNS or ./runs where not given.
        settings: further words of the command line, ``["--lr", "3e-4"]``.
        start: whether to start it.

    Raises:
        ValueError: if there is no such recipe, arm or setting, or something is missing that a start needs.
    """
    device = device_of(device)
    config = chosen_run(name, arm, scale=scale, seed=seed, device=device, words=settings)
    folder = run_folder(config, LaunchConfig(out=None if out is None else Path(out)))
    words = [
        name,
        "--arm",
        recipe_arm(config),
        "--seed",
        str(seed),
        "--device",
        device,
        "--out",
        str(folder.absolute()),
    ]
    words += ["--keep", *([] if scale == "full" else [f"--{scale}", "--save-every", str(SAVE_EVERY)])]
    words += settings
    found = Launch(config, words, device=device, folder=folder)
    if start:
        found.start()
    return found


def _lock(printed: IO[bytes]) -> bool:
    """Lock an open file for this process and for the children that get it; False if others have it."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(printed, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_printed_to(path: Path) -> bool:
    """Whether a process lives that was started with this file to print to."""
    if not path.exists():
        return False
    with path.open("rb") as printed:
        return not _lock(printed)


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
        Chapter 20 goes on with such a run.
    """
    options = ["--save-every", "0", "--log-every", "1", "--quiet", "--device", "cpu", "--out"]
    process = subprocess.Popen(
        [sys.executable, "-m", "gkalib", "train", *words, *options, str(folder)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=_environment() | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},  # two round differently
    )
    while (found := newest(folder)) is None or step_of(found) < step:
        if process.poll() is not None:
            raise ValueError(f"train: {' '.join(words)} ended with {process.returncode} before step {step}")
        time.sleep(0.002)
    process.kill()
    return process.wait()


def _environment() -> dict[str, str]:
    """That of a process which finds this library, installed or not."""
    root = str(Path(gkalib.__file__).parents[1])
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}


def _size(count: int) -> str:
    """Bytes in words."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def _short(path: Path) -> str:
    """A path as seen from where the kernel stands, if it lies below."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
