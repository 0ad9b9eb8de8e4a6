"""From settings to a launch: what a command line overrides, what a run costs, the lines that start it."""

import argparse
import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import torch

from gkalib.models import Count, count
from gkalib.training.config import LanguageConfig, LaunchConfig, Recipe, TrainConfig, VisionConfig

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


FIXED = ("recipe", "arm", "scale", "seed")


def overridden(run: TrainConfig, given: Sequence[str], *, show: bool = False) -> TrainConfig:
    """The run with settings given as ``--lr 3e-4 --model.depth 6``.

    Args:
        run: what they change.
        given: words of a command line.
        show: whether to print every setting there is instead, and exit.

    Raises:
        ValueError: if there is no such setting, or a value has another type.
    """
    if not given and not show:
        return run
    import tyro

    said = io.StringIO()
    words = ["--help"] if show else list(given)
    try:
        with contextlib.redirect_stderr(io.StringIO() if show else said):
            made = tyro.cli(
                type(run),
                default=replace(run, smaller={}),
                args=words,
                prog=f"python -m gkalib train {run.recipe} --arm {run.arm}",
                description=f"Settings of {run.recipe}, arm {run.arm}, {run.scale} scale.",
                compact_help=True,
            )
    except SystemExit:
        if show:
            raise
        reason = _plain(said.getvalue()).replace("Unrecognized options:", f"{run.recipe} has no setting")
        raise ValueError(f"train: {reason.rstrip('.')}. --settings lists what can be set") from None
    for name in FIXED:
        if getattr(made, name) != getattr(run, name):
            raise ValueError(f"train: {name} is chosen by --arm, --smoke, --reduced and --seed, not set")
    return replace(made, smaller=run.smaller)


def _plain(said: str) -> str:
    """tyro's message without its frame: what is between two rules is one sentence, whatever its lines."""
    sentences = [""]
    for line in said.splitlines()[1:]:
        words = line.strip("╭╮╰╯─│ ")
        if not words:
            sentences.append("")
        elif "full helptext" not in words:
            sentences[-1] += f"{words} "
    return "; ".join(filter(None, map(str.strip, sentences))).rpartition("train: ")[-1]


def device_of(name: str | None) -> str:
    """The device that a launch will use."""
    return name or ("cuda" if torch.cuda.is_available() else "cpu")


def launch_of(options: argparse.Namespace) -> LaunchConfig:
    """Where and how, from the options of the command line."""
    names = (
        *("out", "device", "workers", "compile", "shard", "save_every", "log_every"),
        *("snapshots", "fresh", "from_step", "keep", "quiet"),
    )
    return LaunchConfig(**{name: getattr(options, name) for name in names})


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
