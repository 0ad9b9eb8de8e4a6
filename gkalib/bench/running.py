"""Jobs as they run: side by side or in turn, each noted when it ends and packed with what it saved."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, final

from gkalib import results
from gkalib.bench import packing
from gkalib.bench.job import Job, code_hash
from gkalib.bench.process import Process

EXPERIMENT = "reproduce"  # where the store notes which job ran on which device, on what code
START = 15.0  # seconds that a process may take before its job begins
PATIENCE = 3.0  # times its estimate that a job may take
TAIL = 2000  # characters of a job's output that are shown
STEP = 15.0  # seconds between two packings of what a running job has saved
WARM = 60.0  # seconds that compiling ahead takes for a job, one compiler at work
AT_ONCE = ("cuda",)  # where compilers may run side by side: such a machine has cores to spare


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


@final
@dataclass
class Here:
    """Where jobs run.

    Args:
        device: ``"cuda"`` or ``"cpu"``; name: in words.
        store: for what they save; out: the folder for the pack of it, or None.
        log: for what they print.
    """

    device: str
    name: str
    store: Path
    out: Path | None
    log: IO[str]

    def together(
        self, given: Sequence[tuple[State, bool]], at_once: int, end: float
    ) -> list[tuple[str, str]]:
        """Run jobs and what warms others, so many at once."""
        waiting, running, ended = list(given), {}, []
        try:
            while waiting or running:
                while waiting and len(running) < at_once:
                    one, warms = waiting.pop(0)
                    left = end - time.monotonic()
                    if not warms and one.seconds + START > left:
                        print(f"{one}: {left:.0f} s are left, not enough")
                        continue
                    process = self._start(one, warm=warms, threads=1 if at_once > 1 else None)
                    process.begin(min(left, START + PATIENCE * (WARM if warms else one.seconds)))
                    running[process] = one, warms, one.job.code()
                for process in list(running):
                    how = process.wait(STEP / 10 / len(running))
                    if how is not None:
                        one, warms, code = running.pop(process)
                        ended += self._end(process, one, how, code, warm=warms)
        finally:
            for process in running:
                self._say(process.close())
        return ended

    def in_turn(self, todo: Sequence[State], end: float) -> list[tuple[str, str]]:
        """Run jobs one after another; where a card is, the next one's process gets ready meanwhile."""
        ended, spare = [], None
        try:
            for index, one in enumerate(todo):
                left = end - time.monotonic()
                if one.seconds + START > left:
                    print(f"{one}: {left:.0f} s are left, not enough")
                    continue
                print(f"{one}: starts", flush=True)
                code = one.job.code()
                process = spare[1] if spare and spare[0] is one else self._start(one)
                process.begin(min(left, START + PATIENCE * one.seconds))
                spare = None
                try:
                    if self.device in AT_ONCE:
                        after = left - one.seconds - 2 * START
                        fits = [two for two in todo[index + 1 :] if two.seconds <= after]
                        spare = (fits[0], self._start(fits[0])) if fits else None
                    how = self._finished(process)
                except BaseException:  # the whole queue is being stopped
                    self._say(process.close())
                    raise
                ended += self._end(process, one, how, code)
        finally:
            if spare:
                spare[1].close()
        return ended

    def _finished(self, process: Process) -> str:
        """How a process ended; meanwhile what it saves is packed."""
        while (how := process.wait(STEP)) is None:
            self._pack()
        return how

    def _start(self, one: State, *, warm: bool = False, threads: int | None = None) -> Process:
        job = one.job
        call = job.warm if warm else job.call
        return Process(call, job.arguments, device=self.device, store=self.store, threads=threads)

    def _end(
        self, process: Process, one: State, how: str, code: str, *, warm: bool = False
    ) -> list[tuple[str, str]]:
        """Note how a job ended, and pack what there is; what only warms ends in a line and no more."""
        seconds = process.seconds
        said = process.close()
        self._say(said, TAIL if how != "done" else TAIL // 4)
        print(f"{one.job.name}: {'warmed, ' if warm else ''}{how} after {seconds:.0f} s", flush=True)
        if warm:
            return []
        if how == "done":
            self._note(one.job, code, seconds)
        self._pack()
        return [(one.job.name, how)]

    def _say(self, said: str, tail: int = TAIL) -> None:
        """Write to the log what a process said, and print its end."""
        self.log.write(said)
        self.log.flush()
        print(said[-tail:].rstrip(), flush=True)

    def _pack(self) -> None:
        if self.out is not None:
            packing.pack(self.store, self.out, code=code_hash())

    def _note(self, job: Job, code: str, seconds: float) -> None:
        """Write down that a job is done."""
        record = results.Record(
            experiment=EXPERIMENT,
            arm=job.name,
            scale="smoke" if self.device == "cpu" else "full",
            recipe={"call": job.call, "arguments": dict(job.arguments), "code": code},
            seed=0,
            device=self.name,
            wall_seconds=round(seconds, 1),
            metrics={"estimate": job.seconds},
            **results.provenance("torch"),
        )
        results.save(record, root=self.store)
