"""Commands that measure: speed, block sizes, what is missing."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final

from tyro.conf import Positional

from gkalib.cli.options import Device, Scale


@final
@dataclass(frozen=True)
class Bench:
    """Time what the library does on this machine."""

    name: Positional[str]  # what to time, for example smooth
    shape: Positional[tuple[str, ...]] = ()  # shapes of it; all of them where none is named
    device: Device = "cpu"  # where
    scale: Scale = "full"  # how much of it
    keep: bool = False  # keep the rows in data/results

    def __call__(self) -> None:
        """Print a row a case."""
        from gkalib.bench.run import run

        run(self.name, self.shape, device=self.device, scale=self.scale, keep=self.keep)


@final
@dataclass(frozen=True)
class Tune:
    """Choose the block sizes of the fused programs by time, on a CUDA device.

    What correctness runs prove with them is written down beside them, for ``auto`` to go by.
    """

    program: Positional[tuple[str, ...]] = ()  # as configs.json names them; all where none is named
    recorded: bool = False  # choose by the recorded times, and time nothing

    def __call__(self) -> None:
        """Print what changed."""
        from gkalib.gpu import proofs, tune

        if not self.recorded:
            tune.run(self.program)
        changes = tune.adopt()
        changes.append(f"{len(changes)} entries changed; record the programs anew: make aot UPDATE=1")
        found = proofs.by_record()
        proofs.write(found)
        print(*changes, f"{len(found)} proofs written", sep="\n")


@final
@dataclass(frozen=True)
class Reproduce:
    """Run the GPU work whose results are missing, as much as fits the time.

    The most urgent goes first. Safe to stop and to repeat. With --out nothing is written to data/results;
    there, --unpack saves the pack.
    """

    job: Positional[tuple[str, ...]] = ()  # as --list names them; all of them where none is named
    batch: Literal[1, 2, 3] | None = None  # what the goals need, in three parts of nine minutes on a card
    plan: bool = False  # show the batches, second by second
    minutes: float | None = None  # the time there is; 10, or 9 for a batch
    out: Path | None = None  # a folder for one packed file; the store of results
    device: Device = "cuda"  # where; on a cpu a small form
    list: bool = False  # show the jobs, their estimates and what is missing
    unpack: Path | None = None  # save the runs of a packed file in data/results
    report: bool = False  # show what has run on a GPU, beside the goals

    def __call__(self) -> None:
        """Run the jobs, or print the list or the report."""
        from gkalib.gpu import queue

        words = {"job": "names", "list": "show", "plan": "planned", "report": "reported"}
        queue.command(**{words.get(name, name): value for name, value in vars(self).items()})
