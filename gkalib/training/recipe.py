"""A recipe: the runs of one experiment of a paper, an arm each, what they cost and how to launch them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import final

import torch

from gkalib.models import Count, count
from gkalib.training.run import LanguageRun, Run, VisionRun

PEAK = 989e12  # dense bf16 operations per second of an H100, as NVIDIA states them
SHARE = 0.3  # of which we count on


@final
@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The runs of one experiment.

    Args:
        name: what ``python -m gkalib train`` is given.
        paper: its key in the bibliography.
        summary: what is compared, in one line.
        expects: what the paper prints, in one line.
        arms: what makes the run of each arm at full size; the first is the default.
    """

    name: str
    paper: str
    summary: str
    expects: str
    arms: Mapping[str, Callable[[], Run]]

    def run(self, arm: str | None = None) -> Run:
        """The run of an arm at full size.

        Raises:
            ValueError: if there is no such arm.
        """
        arm = arm or next(iter(self.arms))
        if arm not in self.arms:
            raise ValueError(f"train: no arm {arm!r} in {self.name!r}. Known: {', '.join(self.arms)}")
        return self.arms[arm]()


@final
@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a run costs.

    Args:
        count: of the model.
        items: images or tokens that training reads.
        operations: floating-point operations of all training steps, in GKA's convention for images (three
            forward passes of matrix products) and nanochat's for tokens.
    """

    count: Count
    items: int
    operations: float

    @property
    def hours(self) -> float:
        """Hours on one H100 if it does 30 per cent of its dense bf16 peak: an estimate."""
        return self.operations / (PEAK * SHARE) / 3600


def cost(run: Run) -> Cost:
    """What a run costs, counted on its model without computing anything."""
    with torch.device("meta"):
        model = run.build()
    if isinstance(run, VisionRun):
        side = run.model.image_size
        counted = count(model, torch.empty(1, run.model.channels, side, side, device="meta"))
        items, each = run.steps * run.batch, 3 * counted.flops
    else:
        assert isinstance(run, LanguageRun)
        counted = count(model, torch.empty(1, run.model.context, dtype=torch.long, device="meta"))
        items = run.steps * run.batch * run.model.context
        each = counted.flops_per_token or 3 * counted.flops // run.model.context
    return Cost(count=counted, items=items, operations=float(items * each))


def launch_lines(run: Run) -> dict[str, str]:
    """The command of a run on one GPU, on eight, and on two machines of eight under SLURM.

    Where the parts of a step cannot be shared evenly, the line makes them smaller.
    """
    scale = {"full": "", "reduced": " --reduced", "smoke": " --smoke"}[run.scale]
    call = f"-m gkalib train {run.recipe} --arm {run.arm}{scale} --compile"
    two = "torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint"
    node = "$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1):29500"
    return {
        "one GPU": f"python {call}",
        "eight GPUs": f"torchrun --standalone --nproc-per-node 8 {call}{_parts_for(run, 8)}",
        "SLURM": "sbatch --nodes 2 --ntasks-per-node 1 --gpus-per-node 8 "
        f"--wrap 'srun {two} {node} {call}{_parts_for(run, 16)}'",
    }


def _parts_for(run: Run, processes: int) -> str:
    """The option with which so many processes can share a step: the largest parts that they can."""
    if run.parts % processes == 0:
        return ""
    sizes = [size for size in range(1, run.device_batch + 1) if run.batch % (size * processes) == 0]
    return f" --device-batch {sizes[-1]}" if sizes else f" --batch {processes * run.device_batch}"
