"""Processes that train and are killed, and what is left of them."""

import json
import multiprocessing
import os
import signal
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from gkalib.training import LanguageConfig, LaunchConfig
from gkalib.training.checkpoint import newest
from gkalib.training.log import CURVE, TIMINGS, read_curve
from tests.training import toy

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.training.toy"])  # imports once what each process needs


def begin(
    run: LanguageConfig, folder: Path, *, event: toy.Event = toy.nothing, **launch: Any
) -> ForkServerProcess:
    """A process that trains; what it says goes to a file beside the folder."""
    given = LaunchConfig(**{"out": folder, "device": "cpu", "log_every": 1} | launch)
    process = CONTEXT.Process(target=toy.life, args=(run, given, spoken(folder), event))
    process.start()
    return process


def live(
    run: LanguageConfig, folder: Path, *, event: toy.Event = toy.nothing, **launch: Any
) -> tuple[int | None, str]:
    """A whole life: its exit code and what it said last."""
    process = begin(run, folder, event=event, **launch)
    process.join(300)
    lines = spoken(folder).read_text().strip().splitlines()
    return process.exitcode, lines[-1] if lines else ""


def spoken(folder: Path) -> Path:
    """Where the processes of a folder leave what they say."""
    return folder.with_suffix(".said")


def rows(folder: Path) -> list[dict[str, str]]:
    """The curve without the columns that two equal runs do not share."""
    return [
        {key: value for key, value in row.items() if key not in TIMINGS} for row in read_curve(folder / CURVE)
    ]


def state(folder: Path) -> dict[str, Any]:
    """What the newest checkpoint says of itself, but for the time that it took."""
    path = newest(folder)
    assert path is not None
    stored = json.loads((path / "state.json").read_text())
    return {key: value for key, value in stored.items() if key not in ("seconds", "seal")}


def kill(process: ForkServerProcess, folder: Path, *, step: int, seconds: float) -> None:
    """Kill a process some time after its curve has a row of a step."""
    assert process.pid is not None
    while process.is_alive() and not any(row["step"] == str(step) for row in read_curve(folder / CURVE)):
        time.sleep(0.002)
    time.sleep(seconds)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
