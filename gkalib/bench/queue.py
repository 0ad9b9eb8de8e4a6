"""The work that needs a GPU, in order of priority: what is missing or stale, as much as fits the time."""

import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch

from gkalib import results
from gkalib.bench import packing
from gkalib.bench.job import PACKAGE, Job, code_hash

EXPERIMENT = "reproduce"  # where the store notes which job ran on which device, on what code
START = 15.0  # seconds that a process may take before its job begins
PATIENCE = 3.0  # times its estimate that a job may take
TAIL = 2000  # characters of a job's output that are shown
STEP = 15.0  # seconds between two packings of what a running job has saved


@final
@dataclass(frozen=True)
class State:
    """Where a job stands on a device.

    Args:
        job: which.
        state: ``"missing"``, ``"stale"`` (it ran on other code) or ``"done"``.
        seconds: what it will take.
    """

    job: Job
    state: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.job.priority:>3}  {self.job.name:<34} {self.seconds:>6.0f} s  {self.state}"


def present(device: str) -> bool:
    """Whether a device is here."""
    return device == "cpu" or torch.cuda.is_available()


def device_name(device: str) -> str:
    """The device in words, as records name it.

    Raises:
        ValueError: if it is not there.
    """
    if device == "cpu":
        return f"{os.cpu_count()} cores {platform.machine()}"
    if not present(device):
        raise ValueError(
            "reproduce: no CUDA device is here, and this work needs one. "
            "`python -m gkalib reproduce --list` shows it; `--device cpu` runs a small form of what can."
        )
    return torch.cuda.get_device_name()


def stand(known: Sequence[Job], device: str | None, stores: Sequence[Path]) -> list[State]:
    """Where each job stands on a device, named in words, or on whichever it ran on last if None."""
    notes = [note for store in stores for note in _notes(store) if device in (None, note.device)]
    found = []
    for job in known:
        mine = [note for note in notes if note.arm == job.name]
        done = any(note.recipe["code"] == job.code() for note in mine)
        state = "done" if done else "stale" if mine else "missing"
        last = max(mine, key=lambda note: note.date).wall_seconds if mine else job.seconds
        found.append(State(job, state, last))
    return found


def listing(known: Sequence[Job], device: str) -> str:
    """The queue as text: priority, name, estimate and state of each job, and what is left altogether."""
    here = device_name(device) if present(device) else None
    head = f"On {here}:" if here else "No CUDA device is here; what ran on any counts as done:"
    states = stand(known, here, [results.folder()])
    left = sum(state.seconds for state in states if state.state != "done")
    return "\n".join([head, *map(str, states), f"{left / 60:.0f} minutes are left of {len(states)} jobs"])


def _notes(store: Path) -> list[results.Record]:
    return results.load(EXPERIMENT, root=store) if EXPERIMENT in results.experiments(root=store) else []


def reproduce(
    known: Sequence[Job],
    minutes: float,
    *,
    device: str = "cuda",
    out: Path | None = None,
    names: Sequence[str] = (),
) -> list[tuple[str, str]]:
    """Run what is missing or stale, the most important first, as long as it fits.

    Each job has a process of its own and may take three times its estimate, and none runs past the minutes.
    What a job saved is kept even if it is stopped; it counts as done only when it ends well. Repeating the
    command goes on where the last one stopped.

    Args:
        known: the jobs, the most urgent first.
        minutes: the time there is.
        device: ``"cuda"`` or ``"cpu"``.
        out: a folder for one packed file and the log; the store of results itself where not given.
        names: of jobs; all of them where none is named.

    Returns:
        The name of each job that was started and how it ended.

    Raises:
        ValueError: if the device is not there or a name is unknown.
    """
    end = time.monotonic() + 60 * minutes
    known = [job for job in known if device in job.devices]
    unknown = set(names) - {job.name for job in known}
    if unknown:
        raise ValueError(
            f"reproduce: no job {sorted(unknown)[0]!r}. Known: {', '.join(j.name for j in known)}"
        )
    name, ended = device_name(device), []
    with _stopping(), _store(out) as store, _log(out) as log:
        todo = stand(
            [job for job in known if not names or job.name in names], name, [results.folder(), store]
        )
        for one in todo:
            left = end - time.monotonic()
            if one.state == "done":
                print(f"{one}")
            elif one.seconds + START > left:
                print(f"{one}: {left:.0f} s are left, not enough")
            else:
                print(f"{one}: starts", flush=True)
                limit = min(left, START + PATIENCE * one.seconds)
                start, code = time.monotonic(), one.job.code()
                how = _run(one.job, device, limit, store=store, log=log, out=out)
                if how == "done":
                    _note(one.job, code, name, time.monotonic() - start, store)
                if out is not None:
                    packing.pack(store, out, code=code_hash())
                print(f"{one.job.name}: {how} after {time.monotonic() - start:.0f} s", flush=True)
                ended.append((one.job.name, how))
    return ended


@contextmanager
def _store(out: Path | None) -> Iterator[Path]:
    """Where runs are saved: the store itself, or a folder that is packed into ``out``."""
    if out is None:
        yield results.folder()
        return
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as holder:
        if (out / packing.NAME).exists():
            packing.unpack(out / packing.NAME, root=Path(holder))
        try:
            yield Path(holder)
        finally:
            packing.pack(Path(holder), out, code=code_hash())


def _log(out: Path | None):
    return tempfile.TemporaryFile("w+") if out is None else (out / "log.txt").open("a+")


@contextmanager
def _stopping() -> Iterator[None]:
    """Within it a request to end raises ``SystemExit``, so that what was begun is cleared away."""

    def stop(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(job: Job, device: str, limit: float, *, store: Path, log: Any, out: Path | None) -> str:
    """Run a job in a process group of its own; says how it ended."""
    path = [str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    surroundings = {
        **os.environ,
        "GKALIB_RESULTS": str(store.resolve()),
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONUNBUFFERED": "1",
    }
    if device == "cpu":
        surroundings["TRITON_INTERPRET"] = "1"
    stated = json.dumps({"call": job.call, "arguments": {**job.arguments, "device": device}})
    command = [sys.executable, "-c", "from gkalib.bench.job import perform; perform()", stated]
    begin, end = log.seek(0, os.SEEK_END), time.monotonic() + limit
    # A group, so that the processes it starts end with it; no session, so that it ends with its caller's.
    process = subprocess.Popen(
        command, env=surroundings, stdout=log, stderr=subprocess.STDOUT, process_group=0
    )
    try:
        while process.poll() is None:
            left = end - time.monotonic()
            if left <= 0:
                return f"stopped at its limit of {limit:.0f} s"
            try:
                process.wait(min(left, STEP))
            except subprocess.TimeoutExpired:
                if out is not None:
                    packing.pack(store, out, code=code_hash())
        return "done" if process.returncode == 0 else f"failed with status {process.returncode}"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # it, or what it left behind
        process.wait()
        log.flush()
        log.seek(begin)
        print(log.read()[-TAIL:].rstrip(), flush=True)


def _note(job: Job, code: str, device: str, seconds: float, store: Path) -> None:
    """Write down that a job is done."""
    record = results.Record(
        experiment=EXPERIMENT,
        arm=job.name,
        scale="full" if device != device_name("cpu") else "smoke",
        recipe={"call": job.call, "arguments": dict(job.arguments), "code": code},
        seed=0,
        device=device,
        wall_seconds=round(seconds, 1),
        metrics={"estimate": job.seconds},
        **results.provenance("torch"),
    )
    results.save(record, root=store)
