"""What is asked of a card, as a list of commands: the most urgent first, as much as fits the time.

``CONTRIBUTING.md`` says how to run it.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, final
from xml.etree import ElementTree

import torch
import tyro

from gkalib import results
from gkalib.bench.goals import WORDS, goals
from gkalib.bench.run import benchmark
from gkalib.bench.timing import device_name, keep
from gkalib.smoothing.fused import cards

START, PATIENCE = 15.0, 3.0  # seconds for a process to begin, and times its estimate that it may take
HELD = 20.0  # seconds that a process may need to end when it is killed
OUTCOMES = ("failure", "error", "skipped")
TESTS, PROOFS = ("correctness", "tests"), ("tuning", "ready")
"""Experiments and arms of the runs that say how the tests ended, and what ``ready`` found."""
CODE = "gka-smooth-lags-decode-rows"
"""All operations, as a name of which ``cards.code`` is asked."""
TRAININGS = (
    *(("gpa-dickens", arm) for arm in ("rope", "bank", "bank-rope")),
    *(("rbf-tinystories", arm) for arm in ("standard", "rbf", "rbf-registers")),
    *(("gka-imagenet-tiny", arm) for arm in ("deit", "gka")),
    *(("gpa-dickens", arm) for arm in ("bank-unwrapped", "bank-rope-unwrapped")),
    *(("karat-cifar10", arm) for arm in ("tiny-softmax", "tiny-g3b", "tiny-g3u")),
)
"""Recipes and arms that chapters wait for, in their order."""


@final
@dataclass(frozen=True)
class Command:
    """One command of the list.

    Args:
        words: that follow ``python``.
        record: experiment and arm of the run that it leaves.
        seconds: that it takes on an H100, a guess.
    """

    words: tuple[str, ...]
    record: tuple[str, str]
    seconds: float

    def __str__(self) -> str:
        return f"{' '.join(self.words)}, about {self.seconds:.0f} s"

    def done(self, store: Path, commit: str, device: str) -> bool:
        """Whether a store has its run of a commit on a device, a rehearsal's too."""
        experiment, arm = self.record
        paths = store.glob(f"{experiment}/{arm}-*/run.json")
        runs = [results.Record.from_json(path.read_text(encoding="utf-8")) for path in paths]
        return (arm, commit, device) in [(run.arm, run.commit, run.device) for run in runs]


def commands(device: str) -> Iterator[Command]:
    """The list, for a card or in small for a CPU."""
    small = device == "cpu"
    yield Command(("-c", f"from gkalib.gpu.run import check; check({device!r})"), TESTS, 400.0)
    if not small:
        yield Command(("-c", "from gkalib.gpu.run import prove; prove(8.0)"), PROOFS, 480.0)
    scale = "smoke" if small else "full"
    known = {f"{name}-{shape}" for name in WORDS for shape in benchmark(name).shapes(scale, device)}
    for record, arms in dict.fromkeys((goal.record, goal.arms) for goal in goals() if goal.record in known):
        words = ("-m", "gkalib", "bench", *record.split("-", 1), "--arm", *arms.split())
        seconds = 90.0 if record.startswith("models") else 40.0
        yield Command((*words, "--device", device, "--scale", scale, "--keep"), ("bench", record), seconds)
    for name, arm in TRAININGS:
        size = ("--smoke",) if small else ("--reduced", "--compile")
        words = ("-m", "gkalib", "train", name, "--arm", arm, *size, "--device", device, "--keep", "--quiet")
        yield Command(words, (name, arm), 240.0)


def check(device: str) -> None:
    """Run the tests of fused operations on a card, or their rehearsal, and keep how they ended.

    The record is ``correctness/tests``: how many were run and how many are ``wrong``, with a row a test.

    Raises:
        ValueError: if no test was run, or pytest did not come to its end: what is cut off proves nothing.
    """
    root, start = results.repository() or Path(), time.perf_counter()
    path = Path("tests", "smoothing", "fused", "test_card.py" if device == "cpu" else "")
    with tempfile.TemporaryDirectory() as holder:
        report = Path(holder) / "report.xml"
        options = ["-m", "gpu", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        status = subprocess.run([sys.executable, "-m", "pytest", str(path), *options], cwd=root).returncode
        rows = outcomes(report.read_text(encoding="utf-8")) if report.exists() else []
    if status not in (0, 1):  # all passed, some failed
        raise ValueError(f"run: pytest was cut off, with status {status}; the output above says why")
    metrics = {
        "cases": sum(row["outcome"] != "skipped" for row in rows),
        "wrong": sum(row["outcome"] in ("failure", "error") for row in rows),
    }
    if not metrics["cases"]:
        raise ValueError("run: no test was run; the output above says why")
    keep(
        *TESTS, metrics, rows, device=device, scale="smoke" if device == "cpu" else "full",
        recipe={"programs": cards.code(CODE)}, wall_seconds=round(time.perf_counter() - start, 1),
    )  # fmt: skip


def outcomes(report: str) -> list[dict[str, str]]:
    """A row a test of pytest's report in XML: passed, or the first of failure, error and skipped."""
    return [
        {
            "test": f"{test.get('classname')}::{test.get('name')}",
            "outcome": next((each.tag for each in test if each.tag in OUTCOMES), "passed"),
            "seconds": test.get("time", ""),
        }
        for test in ElementTree.fromstring(report).iter("testcase")
    ]


def prove(minutes: float) -> None:
    """Make the card ready for the goals, and keep its lines, of which a file in fused/cards can be made.

    Raises:
        ValueError: if lines are left.
    """
    from gkalib.gpu import ready

    start, card = time.perf_counter(), ready.card_here()
    needs = ready.needed(
        (*ready.DEFAULT, "karat", "decode", "decode-gaussian", "decode-lags"), (64, 128), ["bfloat16"]
    )
    left = ready.run(card, needs, minutes=minutes)
    lines = [*cards.known(card).values()]
    print(ready.report(lines), flush=True)
    if left:
        raise ValueError(f"run: {left} lines are left, which the next call goes on with")
    metrics = {"lines": len(lines), "right": sum(line.verdict == "right" for line in lines)}
    rows = [asdict(line) | {"blocks": json.dumps(line.blocks)} for line in lines]
    recipe = {"programs": cards.code(CODE)}
    seconds = round(time.perf_counter() - start, 1)
    keep(*PROOFS, metrics, rows, device="cuda", scale="full", recipe=recipe, wall_seconds=seconds)


def run(minutes: float, out: Path, device: str = "cuda") -> list[Command]:
    """Run what is not done and fits, each command in a process of its own, ended with all that it started.

    What ``ready`` finds is in the card's file, by which the commands behind it go.

    Args:
        minutes: the time there is; a command begins only if it fits, and ends with it.
        out: the folder.
        device: ``"cuda"`` or ``"cpu"``.

    Returns:
        The commands that did not end well.
    """
    if minutes <= 0:
        raise ValueError(f"run: minutes must be above 0, not {minutes:g}")
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("run: no CUDA device is here; --device cpu rehearses the list, --list shows it")
    end, store = time.monotonic() + 60 * minutes, (out / "results").resolve()
    store.mkdir(parents=True, exist_ok=True)
    commit, name, failed = results.provenance()["commit"], device_name(device), []
    environment = {"GKALIB_RESULTS": str(store), "GKALIB_RUNS": str((out / "runs").resolve())}
    environment |= {"TRITON_INTERPRET": "1"} if device == "cpu" else {}
    for command in commands(device):
        left = end - time.monotonic()
        if command.done(store, commit, name):
            print(f"{command}: done", flush=True)
        elif command.seconds > left and device == "cuda":
            print(f"{command}: {left:.0f} s are left, not enough", flush=True)
        elif left > 0:
            print(f"{command}: starts", flush=True)
            limit = min(left, START + PATIENCE * command.seconds)
            failed += [] if _ended_well(command, limit, environment, out / "log.txt") else [command]
            shutil.make_archive(str(out / "results"), "gztar", store)
    return failed


def _ended_well(command: Command, limit: float, environment: dict[str, str], log: Path) -> bool:
    """Run a command under a limit; what it prints goes to the log."""
    start = time.monotonic()
    with log.open("a") as output:
        # A group, so that the processes it starts end with it; no session, so that it ends with its caller's.
        process = subprocess.Popen(
            [sys.executable, *command.words], env=os.environ | environment, cwd=results.repository(),
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, process_group=0,
        )  # fmt: skip
        try:
            status = process.wait(limit)
            said = "done" if status == 0 else f"failed with status {status}"
        except subprocess.TimeoutExpired:
            status, said = None, f"stopped at its limit of {limit:.0f} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):  # a card may keep hold of a process for ever
                process.wait(HELD)
    print(f"    {said} after {time.monotonic() - start:.0f} s", flush=True)
    return status == 0


def main(
    minutes: float = 30.0,
    out: Path = Path("from-card"),
    device: Literal["cuda", "cpu"] = "cuda",
    list: bool = False,
) -> int:
    """Run what is asked of a card, the most urgent first; an error that a user can mend is one line.

    Args:
        minutes: the time there is.
        out: a folder for the runs.
        device: cpu rehearses the list at tiny sizes.
        list: print the commands and run none.
    """
    if list:
        print(*commands(device), sep="\n")
        return 0
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        failed = run(minutes, out, device)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if failed:
        print(f"{len(failed)} commands did not end well; {out / 'log.txt'} says why", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(tyro.cli(main, prog="python -m gkalib.gpu.run", config=(tyro.conf.FlagCreatePairsOff,)))
