"""Commands that measure: speed, and which block sizes are fastest."""

from dataclasses import dataclass
from typing import final

from tyro.conf import Positional

from gkalib.cli.options import Device, Scale


@final
@dataclass(frozen=True)
class Bench:
    """Time what the library does on this machine."""

    name: Positional[str]  # what to time, for example smooth
    shape: Positional[tuple[str, ...]] = ()  # shapes of it; all of them where none is named
    arm: tuple[str, ...] = ()  # arms of a shape, where it has some; all of them where none is named
    device: Device = "cpu"  # where
    scale: Scale = "full"  # how much of it
    keep: bool = False  # keep the rows in data/results

    def __call__(self) -> None:
        """Print a row a case."""
        from gkalib.bench.run import run

        run(self.name, self.shape, arms=self.arm, device=self.device, scale=self.scale, keep=self.keep)


@final
@dataclass(frozen=True)
class Tune:
    """Choose the block sizes of the fused programs by time, on a CUDA device.

    What runs of the tests prove with them is written down beside them, for ``auto`` to go by.
    """

    program: Positional[tuple[str, ...]] = ()  # as configs.json names them; all where none is named
    recorded: bool = False  # choose by the recorded times, and time nothing

    def __call__(self) -> None:
        """Print what changed."""
        from gkalib.gpu import run, tune

        if not self.recorded:
            tune.run(self.program)
        changes = tune.adopt()
        changes.append(f"{len(changes)} entries changed; record the programs anew: make aot UPDATE=1")
        print(*changes, f"{run.prove()} proofs written", sep="\n")
