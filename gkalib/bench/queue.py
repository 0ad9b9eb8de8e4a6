"""The work that needs a GPU, in order of priority: what is missing or stale, as much as fits the time."""

import itertools
import os
import platform
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from gkalib import results
from gkalib.bench import packing
from gkalib.bench.job import Job, code_hash
from gkalib.bench.running import AT_ONCE, EXPERIMENT, WARM, Here, State


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
    On a card, jobs whose times do not count run side by side, and before any is timed, so do the compilers of
    those that will fit.
    What a job saved is kept even if it is stopped; it counts as done only when it ends well. Repeating the
    command goes on where the last one stopped.

    Args:
        known: the jobs, the most urgent first.
        minutes: the time there is.
        device: ``"cuda"`` or ``"cpu"``.
        out: a folder for one packed file and the log; the store of results itself where not given.
        names: of jobs, or their first words; all of them where none is named.

    Returns:
        The name of each job that was started and how it ended.

    Raises:
        ValueError: if the device is not there or a name is unknown.
    """
    end = time.monotonic() + 60 * minutes
    known = [job for job in known if device in job.devices]
    unknown = [name for name in names if not any(_named(job, [name]) for job in known)]
    if unknown:
        raise ValueError(f"reproduce: no job {unknown[0]!r}. Known: {', '.join(j.name for j in known)}")
    known = [job for job in known if not names or _named(job, names)]
    name, ended = device_name(device), []
    with _stopping(), _store(out) as store, _log(out) as log:
        todo = []
        for one in stand(known, name, [results.folder(), store]):
            todo += [one] if one.state != "done" else []
            print(one if one.state == "done" else f"{one}: to do")
        at_once = max(1, (os.cpu_count() or 1) - 1) if device in AT_ONCE else 1
        here = Here(device, name, store, out, log)
        warming = _warming(todo, 60 * minutes, at_once) if device in AT_ONCE else []
        if warming and todo[0].job.alone:
            here.together(warming, at_once, end)
        for alone, group in itertools.groupby(todo, key=lambda one: one.job.alone):
            if alone:
                ended += here.in_turn(list(group), end)
            else:
                first = [(one, False) for one in group]
                ended += here.together([*first, *(warming if first[0][0] is todo[0] else [])], at_once, end)
    return ended


def _named(job: Job, names: Sequence[str]) -> bool:
    """Whether a name is the job's, or its first words."""
    return any(job.name == name or job.name.startswith(f"{name}-") for name in names)


def _warming(todo: Sequence[State], left: float, at_once: int) -> list[tuple[State, bool]]:
    """The jobs that have something to compile ahead and that will fit, as what only warms."""
    found = []
    for one in todo:
        left -= one.seconds if one.job.alone else one.seconds / at_once
        if one.job.alone and one.job.warm:
            left -= WARM / at_once
            found += [(one, True)] if left > 0 else []
    return found


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
    return tempfile.TemporaryFile("w+") if out is None else (out / "log.txt").open("a")


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
