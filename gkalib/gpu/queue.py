"""The work that needs a GPU, in order of priority: what is missing or stale, as much as fits the time.

``python -m gkalib.gpu.queue`` runs on an image that has torch, triton, timm, numpy, einops, jaxtyping,
safetensors and rich, and nothing else of what the library can use.
"""

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, final

from gkalib import results
from gkalib.bench.goals import report
from gkalib.bench.timing import device_name, keep
from gkalib.gpu import pack, proofs, tune
from gkalib.gpu.jobs import BATCHES, PACKAGE, Job, code_hash, jobs
from gkalib.gpu.plan import EXPERIMENT, MINUTES, State, listing, plan, present, states, worth_warming
from gkalib.gpu.trainings import TRAININGS
from gkalib.smoothing.fused import configs, proved

START = 15.0  # seconds that a process may take before its job begins
PATIENCE = 3.0  # times its estimate that a job may take
HELD = 20.0  # seconds that a process may need to end when it is killed
TAIL = 2000  # characters of a job's output that are shown
STEP = 0.1  # seconds between two looks at what runs
AT_ONCE = ("cuda",)  # where processes may run side by side: such a machine has cores to spare
CALL = """
import importlib, json, sys
call, arguments = json.loads(sys.argv[1])
module, function = call.split(":")
getattr(importlib.import_module(module), function)(**arguments)
"""


def reproduce(
    jobs: Sequence[Job],
    minutes: float,
    *,
    device: str = "cuda",
    out: Path | None = None,
    names: Sequence[str] = (),
) -> list[tuple[str, str]]:
    """Run what is missing or stale, the most important first, as long as it fits.

    Each job has a process of its own and may take three times its estimate, and none runs past the minutes.
    On a card, jobs whose times do not count run side by side, and beside the first of them compilers work
    ahead for the timed jobs that will fit; whatever is timed runs alone.
    What a job saved is kept even if it is stopped; it counts as done only when it ends well. Repeating the
    command goes on where the last one stopped.

    Args:
        jobs: the most urgent first.
        minutes: the time there is.
        device: ``"cuda"`` or ``"cpu"``.
        out: a folder for one packed file and the log; the store of results itself where not given.
        names: of jobs, or their first words; all of them where none is named.

    Returns:
        The name of each job that was started and how it ended.
    """
    end = time.monotonic() + 60 * minutes
    jobs = [job for job in jobs if device in job.devices]
    _refuse_unknown(jobs, names)
    if minutes <= 0:
        raise ValueError(f"reproduce: minutes must be above 0, not {minutes:g}")
    if not present(device):
        raise ValueError(
            "reproduce: no CUDA device is here, and this work needs one. "
            "`python -m gkalib reproduce --list` shows it; `--device cpu` runs a small form of what can."
        )
    jobs = [job for job in jobs if not names or _matches(job, names)]
    name, side_by_side = device_name(device), device in AT_ONCE
    with _stopping(), _store(out) as store, _log(out) as log:
        todo = []
        for each in states(jobs, name, [results.folder(), store]):
            todo += [each] if each.state != "done" else []
            print(each if each.state == "done" else f"{each}: to do")
        queue = Queue(device, store, out, log, end)
        at_once = max(1, (os.cpu_count() or 1) - 1) if side_by_side else 1
        first = list(itertools.takewhile(lambda each: not each.job.alone, todo))
        queue.run(first, at_once, warm=worth_warming(todo, 60 * minutes, at_once) if side_by_side else [])
        for alone, group in itertools.groupby(todo[len(first) :], key=lambda each: each.job.alone):
            queue.run(list(group), 1 if alone else at_once)
    return queue.ended


def _refuse_unknown(jobs: Sequence[Job], names: Sequence[str]) -> None:
    unknown = [name for name in names if not any(_matches(job, [name]) for job in jobs)]
    if unknown:
        raise ValueError(f"reproduce: no job {unknown[0]!r}. Known: {', '.join(job.name for job in jobs)}")


@final
@dataclass
class Queue:
    """What runs jobs, notes how they ended, and packs what they saved.

    Args:
        device: ``"cuda"`` or ``"cpu"``.
        store: for what jobs save; out: the folder for the pack of it, or None.
        log: for what they print.
        end: when the time is over, by the monotonic clock.
        ended: the jobs that were run, and how each ended.

    The block sizes that a job records as fastest are used by the jobs behind it at once, and so is what a
    job proves.
    """

    device: str
    store: Path
    out: Path | None
    log: IO[str]
    end: float
    ended: list[tuple[str, str]] = field(default_factory=list)

    def tuned(self) -> str:
        """The table of block sizes by what is recorded so far, as text."""
        return tune.text(tune.by_record([results.folder(), self.store]))

    def proved(self) -> str:
        """What is proved by what is recorded so far, as text."""
        return proved.text(proofs.by_record([results.folder(), self.store]))

    def run(self, todo: Sequence[State], at_once: int, *, warm: Sequence[State] = ()) -> None:
        """Run jobs, and what warms others, so many at once."""
        waiting = [*((each, False) for each in todo), *((each, True) for each in warm)]
        running: list[Process] = []
        try:
            while waiting or running:
                while waiting and len(running) < at_once:
                    each, is_warming = waiting.pop(0)
                    remaining = self.end - time.monotonic()
                    if not is_warming and each.seconds + START > remaining:
                        print(f"{each}: {remaining:.0f} s are left, not enough")
                        continue
                    usual = START + PATIENCE * (each.job.ahead if is_warming else each.seconds)
                    limit = min(remaining, usual if is_warming else each.job.limit or usual)
                    where = self.device, self.store, 1 if at_once > 1 else None
                    process = Process(each.job, is_warming, limit, *where, self.tuned(), self.proved())
                    running.append(process)
                    print(f"{each}: starts", flush=True)
                for process in list(running):
                    outcome = process.ended()
                    if outcome is not None:
                        running.remove(process)
                        self._finish(process, outcome)
                time.sleep(STEP)
        finally:
            for process in running:
                self._log_output(process.close())

    def _finish(self, process: "Process", outcome: str) -> None:
        """Note how a job ended, and pack what there is; what only warms ends in a line and no more."""
        job, seconds = process.job, process.seconds
        self._log_output(process.close(), TAIL if outcome != "done" else TAIL // 4)
        print(f"{job.name}: {'warmed, ' if process.warms else ''}{outcome} after {seconds:.0f} s", flush=True)
        if process.warms:
            return
        self.ended.append((job.name, outcome))
        if outcome == "done":
            keep(
                EXPERIMENT,
                job.name,
                {"estimate": job.seconds},
                device=self.device,
                packages=("torch",),
                root=self.store,
                scale="smoke" if self.device == "cpu" else "full",
                recipe={
                    "call": job.call,
                    "arguments": dict(job.arguments),
                    "code": process.code,
                    "shipped": configs.blocks(),
                    "used": process.blocks,
                    "after": configs.blocks(json.loads(self.tuned())),
                },
                wall_seconds=round(seconds, 1),
            )
        if self.out is not None:
            pack.pack(self.store, self.out, code=code_hash())

    def _log_output(self, text: str, tail: int = TAIL) -> None:
        """Write to the log what a process said, and print its end."""
        self.log.write(text)
        self.log.flush()
        print(text[-tail:].rstrip(), flush=True)


@final
class Process:
    """The process of a job, or of what warms it; it ends with all that it has started.

    Args:
        job: what it does.
        warms: whether it only compiles ahead.
        limit: seconds that it may take.
        device: ``"cuda"`` or ``"cpu"``.
        store: where the job saves results.
        threads: of its arithmetic and its compilers; those of the machine if None.
        table: of block sizes, as text; proved: what is, likewise.
    """

    def __init__(
        self,
        job: Job,
        warms: bool,
        limit: float,
        device: str,
        store: Path,
        threads: int | None,
        table: str,
        proved: str,
    ):
        self.job, self.warms, self.code = job, warms, job.code()
        self.blocks = configs.blocks(json.loads(table))
        self._table, self._proved = _file(table), _file(proved)
        path = [str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        surroundings = {
            **os.environ,
            "GKALIB_RESULTS": str(store.resolve()),
            "GKALIB_CONFIGS": self._table.name,
            "GKALIB_PROVED": self._proved.name,
            "PYTHONPATH": os.pathsep.join(path),
            "PYTHONUNBUFFERED": "1",
        }
        if device == "cpu":
            surroundings["TRITON_INTERPRET"] = "1"
        if threads is not None:
            names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS")
            surroundings |= dict.fromkeys(names, str(threads))
        arguments = json.dumps([job.warm if warms else job.call, {**job.arguments, "device": device}])
        self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  it lives as long as the process
        # A group, so that the processes it starts end with it; no session, so that it ends with its caller's.
        self._process = subprocess.Popen(
            [sys.executable, "-c", CALL, arguments],
            env=surroundings,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
        self._start, self._limit = time.monotonic(), limit

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._start

    def ended(self) -> str | None:
        """How it ended, or None if it still runs."""
        status = self._process.poll()
        if status is None:
            return None if self.seconds < self._limit else f"stopped at its limit of {self._limit:.0f} s"
        return "done" if status == 0 else f"failed with status {status}"

    def close(self) -> str:
        """End it, and what it left behind; what it printed."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):  # a card may keep hold of a process for ever
            self._process.wait(HELD)
        self._table.close()
        self._proved.close()
        with self._log:
            self._log.seek(0)
            return self._log.read()


def _file(text: str) -> IO[str]:
    """A file with this text, which is gone when it is closed."""
    file = tempfile.NamedTemporaryFile("w", suffix=".json")  # noqa: SIM115  it lives as long as a process
    file.write(text)
    file.flush()
    return file


def _matches(job: Job, names: Sequence[str]) -> bool:
    """Whether a name is the job's, or its first words."""
    return any(job.name == name or job.name.startswith(f"{name}-") for name in names)


@contextmanager
def _store(out: Path | None) -> Iterator[Path]:
    """Where runs are saved: the store itself, or a folder that is packed into ``out``."""
    if out is None:
        yield results.folder()
        return
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        if (out / pack.NAME).exists():
            pack.unpack(out / pack.NAME, root=Path(folder))
        try:
            yield Path(folder)
        finally:
            pack.pack(Path(folder), out, code=code_hash())


def _log(out: Path | None) -> IO[str]:
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


def command(
    names: Sequence[str] = (),
    *,
    minutes: float | None = None,
    batch: int | None = None,
    out: Path | None = None,
    device: str = "cuda",
    show: bool = False,
    planned: bool = False,
    unpack: Path | None = None,
    reported: bool = False,
) -> None:
    """Run the GPU work whose results are missing or stale, the most urgent first, as much as fits the time.

    Safe to stop and to repeat. With ``out`` nothing is written to data/results; there, ``unpack`` saves the
    pack. The arguments are the options of ``main``.
    """
    if unpack is not None:
        saved = pack.unpack(unpack, code=code_hash())
        print("\n".join([*saved, f"{len(saved)} runs saved"]))
        return
    if reported:
        print(report([(name, arm) for name, arm, _ in TRAININGS]))
        return
    queue_jobs = [job for job in jobs() if device in job.devices]
    if batch not in (None, *BATCHES):
        raise ValueError(f"reproduce: there is no batch {batch}. Known: {', '.join(map(str, BATCHES))}")
    _refuse_unknown(queue_jobs, names)  # before a long list is printed
    if planned:
        print(plan(queue_jobs, batch))
        return
    if batch is not None:
        queue_jobs = [job for job in queue_jobs if job.batch == batch]
    if minutes is None:
        minutes = 10.0 if batch is None else MINUTES
    if show or not present(device):
        print(listing(queue_jobs, device))
    if show:
        return
    outcomes = reproduce(queue_jobs, minutes, device=device, out=out, names=names)
    failed = [name for name, outcome in outcomes if outcome != "done"]
    if failed:
        raise ValueError(f"reproduce: {', '.join(failed)} did not end well; the output above says why")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the queue; an error that a user can mend is one line and status 2."""
    parser = argparse.ArgumentParser(prog="python -m gkalib.gpu.queue", description=command.__doc__)
    option = parser.add_argument
    option("names", nargs="*", metavar="job", help="as --list names it; all of them where none is named")
    option("--minutes", type=float, metavar="M", help="the time there is (10, or 9 for a batch)")
    option("--batch", type=int, metavar="N", help="what the goals need, in three parts: 1, 2 or 3")
    option("--plan", action="store_true", dest="planned", help="show the batches, second by second")
    option("--out", type=Path, metavar="DIR", help="a folder for one packed file (the store of results)")
    option("--device", choices=["cpu", "cuda"], default="cuda", help="where (%(default)s)")
    option("--list", action="store_true", dest="show", help="show the jobs and what is missing")
    option("--unpack", type=Path, metavar="FILE", help="save the runs of a packed file in data/results")
    option("--report", action="store_true", dest="reported", help="show what has run, beside the goals")
    try:
        command(**vars(parser.parse_args(arguments)))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
