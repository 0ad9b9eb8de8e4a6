"""From settings to a launch: what a command line overrides, what a run costs, the lines that start it."""

from dataclasses import dataclass
from typing import final

import torch

from gkalib.models import Count, count
from gkalib.training.config import LanguageConfig, Recipe, TrainConfig, VisionConfig

PEAK = 989e12  # dense bf16 operations per second of an H100, as NVIDIA states them
SHARE = 0.3  # of which we count on


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


def cost(run: TrainConfig) -> Cost:
    """What a run costs, counted on its model without computing anything."""
    with torch.device("meta"):
        model = run.build()
    if isinstance(run, VisionConfig):
        side = run.model.image_size
        counted = count(model, torch.empty(1, run.model.channels, side, side, device="meta"))
        items, each = run.steps * run.batch, 3 * counted.flops
    else:
        assert isinstance(run, LanguageConfig)
        counted = count(model, torch.empty(1, run.model.context, dtype=torch.long, device="meta"))
        items = run.steps * run.batch * run.model.context
        each = counted.flops_per_token or 3 * counted.flops // run.model.context
    return Cost(count=counted, items=items, operations=float(items * each))


def launch_lines(run: TrainConfig) -> dict[str, str]:
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


def _parts_for(run: TrainConfig, processes: int) -> str:
    """The option with which so many processes can share a step: the largest parts that they can."""
    if run.parts % processes == 0:
        return ""
    sizes = [size for size in range(1, run.device_batch + 1) if run.batch % (size * processes) == 0]
    return f" --device-batch {sizes[-1]}" if sizes else f" --batch {processes * run.device_batch}"


def device_of(name: str | None) -> str:
    """The device that a launch will use."""
    return name or ("cuda" if torch.cuda.is_available() else "cpu")


def plan(recipe: Recipe, run: TrainConfig) -> str:
    """What a run is, what it will cost, and how to launch it, in lines."""
    spent, what = cost(run), "images" if isinstance(run, VisionConfig) else "tokens"
    lines = [
        f"{recipe.name}: {recipe.summary}",
        f"paper        {recipe.paper}: {recipe.expects}",
        f"arms         {', '.join(recipe.arms)}",
        f"this run     {run.arm}, {run.scale}, seed {run.seed}, data {run.data}",
        f"parameters   {spent.count.parameters:,}, of attention {spent.count.attention_parameters:,}",
        f"training     {run.steps:,} steps of {run.batch:,}, {spent.items:,} {what} in all",
        f"operations   {spent.operations:.5g}, or {spent.hours:.2g} hours of one H100 at 30 % of its peak",
    ]
    return "\n".join([*lines, *(f"{where:<11}  {line}" for where, line in launch_lines(run).items())])
