"""Where each job of the queue stands, what is worth compiling ahead, and how long a batch will take."""

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch

from gkalib import results
from gkalib.bench.timing import device_name
from gkalib.gpu.jobs import BATCHES, Job
from gkalib.smoothing.fused import configs

EXPERIMENT = "reproduce"  # where the store notes which job ran on which device, on what code
CORES = 16  # of the machine that a plan is made for
MINUTES = 9.0  # that a batch may take


@final
@dataclass(frozen=True)
class State:
    """Where a job stands on a device.

    Args:
        job: which.
        state: ``"missing"``, ``"stale"`` (it ran on other code or block sizes) or ``"done"``.
        seconds: what it will take.
    """

    job: Job
    state: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.job.priority:>3}  {self.job.name:<34} {self.seconds:>6.0f} s  {self.state}"


def states(jobs: Sequence[Job], device: str | None, stores: Sequence[Path]) -> list[State]:
    """Where each job stands on a device, named in words, or on whichever it ran on last if None."""
    notes = [
        note
        for store in stores
        if EXPERIMENT in results.experiments(root=store)
        for note in results.load(EXPERIMENT, root=store)
        if device in (None, note.device)
    ]
    known = same_line(notes)
    return [_state(job, [note for note in notes if note.arm == job.name], known) for job in jobs]


def _state(job: Job, notes: Sequence[results.Record], known: set[str]) -> State:
    done = any(note.recipe["code"] == job.code() and known & _tables(note) for note in notes)
    seconds = max(notes, key=lambda note: note.date).wall_seconds if notes else job.seconds
    return State(job, "done" if done else "stale" if notes else "missing", seconds)


def _tables(note: results.Record) -> set[str]:
    """The hashes of the tables of block sizes in a note: shipped, used, and chosen after the job."""
    return {note.recipe[name] for name in ("shipped", "used", "after")}


def same_line(notes: Sequence[results.Record]) -> set[str]:
    """The tables that runs lead to from the one that is shipped now, or from which they led to it.

    A table that was chosen on a card and is adopted later is of one line with the one that it took the place
    of, so that what ran with either still counts; a table that somebody else wrote is not.
    """
    known, rest = {configs.blocks()}, [_tables(note) for note in notes]
    while joined := [tables for tables in rest if tables & known]:
        known = known.union(*joined)
        rest = [tables for tables in rest if tables not in joined]
    return known


def present(device: str) -> bool:
    """Whether a device is here."""
    return device == "cpu" or torch.cuda.is_available()


def listing(jobs: Sequence[Job], device: str) -> str:
    """The queue as text: priority, name, estimate and state of each job, and what is left altogether."""
    name = device_name(device) if present(device) else None
    head = f"On {name}:" if name else "No CUDA device is here; what ran on any counts as done:"
    every = states(jobs, name, [results.folder()])
    seconds = sum(each.seconds for each in every if each.state != "done")
    return "\n".join([head, *map(str, every), f"{seconds / 60:.0f} minutes are left of {len(every)} jobs"])


def worth_warming(todo: Sequence[State], remaining: float, at_once: int) -> list[State]:
    """The timed jobs that have something to compile ahead and that will fit."""
    chosen = []
    for each in todo:
        remaining -= each.seconds if each.job.alone else each.seconds / at_once
        if each.job.alone and each.job.warm:
            remaining -= each.job.ahead / at_once
            chosen += [each] if remaining > 0 else []
    return chosen


@final
@dataclass(frozen=True)
class Step:
    """A job in a plan: from which second to which it runs, and whether it is only compiled ahead."""

    job: Job
    begin: float
    end: float
    warms: bool = False

    def __str__(self) -> str:
        words = f"{self.job.name}{', compiled ahead' if self.warms else ''}"
        limit = "" if self.job.limit is None or self.warms else f"  stopped at {self.job.limit:.0f} s"
        return f"{self.begin:>6.0f} {self.end - self.begin:>5.0f} s  {words}{limit}"


def planned(todo: Sequence[State], *, at_once: int = CORES - 1) -> list[Step]:
    """When each job will run by its estimate: side by side what is not timed, the rest one by one."""
    steps: list[Step] = []
    warm = worth_warming(todo, 60 * MINUTES, at_once)
    groups = itertools.groupby(todo, key=lambda each: each.job.alone)
    now = 0.0
    for turn, (alone, group) in enumerate(groups):
        jobs, ahead = list(group), [] if turn else warm
        if not turn and alone:  # nothing runs beside what is compiled
            now = _side_by_side(steps, [(each.job, each.job.ahead, True) for each in warm], now, at_once)
            ahead = []
        if alone:
            for each in jobs:
                steps.append(Step(each.job, now, now + each.seconds))
                now += each.seconds
            continue
        both = [(each.job, each.seconds, False) for each in jobs] + [
            (each.job, each.job.ahead, True) for each in ahead
        ]
        now = _side_by_side(steps, both, now, at_once)
    return steps


def _side_by_side(
    steps: list[Step], work: Sequence[tuple[Job, float, bool]], now: float, at_once: int
) -> float:
    """Add what runs so many at once, each as soon as there is room; when the last of it ends."""
    free = [now] * at_once
    for job, seconds, warms in work:
        begin = heapq.heappop(free)
        steps.append(Step(job, begin, begin + seconds, warms))
        heapq.heappush(free, begin + seconds)
    return max([now, *(step.end for step in steps)])


def plan(jobs: Sequence[Job], batch: int | None = None) -> str:
    """The batches as text: what runs when by its estimate, on a fresh machine of 16 cores with a card."""
    lines = []
    for number, words in BATCHES.items():
        if batch not in (None, number):
            continue
        chosen = [job for job in jobs if job.batch == number]
        steps = planned([State(job, "missing", job.seconds) for job in chosen])
        total = max((step.end for step in steps), default=0.0)
        lines += [f"Batch {number}, {words}: {len(chosen)} jobs, {total:.0f} s of {60 * MINUTES:.0f}"]
        lines += [str(step) for step in steps if not step.warms]
        warmed = sum(step.warms for step in steps)
        lines += [f"       and {warmed} of them compiled ahead, beside the first", ""]
    return "\n".join(lines)
