"""One process at a time writes to a run's folder, and what asks it to stop is heard between steps."""

import fcntl
import os
import platform
import signal
import threading
from pathlib import Path
from typing import Any, final

from gkalib.training.run import Launch, Run

LOCK = ".lock"
_held: set[int] = set()


def folder_of(run: Run, launch: Launch) -> Path:
    """Where a run keeps its checkpoints: ``--out``, or a folder below ``$GKALIB_RUNS`` or ``./runs``."""
    if launch.out is not None:
        return Path(launch.out)
    home = Path(os.environ.get("GKALIB_RUNS", "runs"))
    return home / run.recipe / f"{run.arm}-{run.scale}-s{run.seed}"


def farewell(run: Run, launch: Launch, *, step: int, number: int) -> str:
    """What a run says that a signal stopped after a step; 0 for one that came to another process."""
    name = signal.Signals(number).name if number else "a signal"
    once = {"--fresh": launch.fresh, "--from-step": launch.from_step is not None}
    without = "".join(f" without {option}" for option, given in once.items() if given)
    return (
        f"train: stopped by {name} after step {step} of {run.steps}; saved to "
        f"{folder_of(run, launch)}/step-{step:08d}. The same command{without} goes on from there"
    )


def _let_go() -> None:
    """A child, such as one that loads data, must not keep the folder when this process is gone."""
    for handle in _held:
        os.close(handle)
    _held.clear()


os.register_at_fork(after_in_child=_let_go)


@final
class Guard:
    """A folder that is this process's until ``close`` or its end, however it ends; and the signals it gets.

    SIGTERM, or SIGINT once, is kept in ``signal``; the second does what it did before.

    Args:
        folder: made if it is missing.
        locks: whether this process is the one that writes.

    Raises:
        ValueError: if another process has the folder, which the message names, or it cannot be made.
    """

    def __init__(self, folder: Path, *, locks: bool):
        self.signal = 0
        self._process = os.getpid()
        self._handle = _lock(folder) if locks else None
        self._before: dict[int, Any] = {}

    def listen(self) -> None:
        """Catch the signals; only a program's main thread can."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._caught)

    def close(self) -> None:
        """Give the folder and the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._handle is not None:
            _held.discard(self._handle)
            os.close(self._handle)

    def _caught(self, number: int, _: object) -> None:
        signal.signal(number, self._before[number])
        if os.getpid() == self._process:
            self.signal = number
        elif number == signal.SIGTERM:  # a child that inherited this; the terminal's SIGINT is its parent's
            os.kill(os.getpid(), number)


def _lock(folder: Path) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise ValueError(f"train: {folder} cannot be written to: {error.strerror}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.read(handle, 200).decode(errors="replace").strip() or "another process"
        os.close(handle)
        raise ValueError(
            f"train: {folder} is being written to by {holder}. Wait for it, stop it, or choose another "
            "folder with --out"
        ) from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"process {os.getpid()} on {platform.node()}\n".encode(), 0)
    _held.add(handle)
    return handle
