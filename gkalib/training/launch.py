"""From the command line to a run: settings by their names, where to compute, what a run will cost."""

import argparse
import contextlib
import io
from collections.abc import Sequence
from dataclasses import replace

import torch

from gkalib.training.recipe import Recipe, cost, launch_lines
from gkalib.training.run import Launch, Run, VisionRun

FIXED = ("recipe", "arm", "scale", "seed")


def overridden(run: Run, given: Sequence[str], *, show: bool = False) -> Run:
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


def launch_of(options: argparse.Namespace) -> Launch:
    """Where and how, from the options of the command line."""
    names = (
        *("out", "device", "workers", "compile", "shard", "save_every", "log_every"),
        *("snapshots", "fresh", "from_step", "keep", "quiet"),
    )
    return Launch(**{name: getattr(options, name) for name in names})


def plan(recipe: Recipe, run: Run) -> str:
    """What a run is, what it will cost, and how to launch it, in lines."""
    spent, what = cost(run), "images" if isinstance(run, VisionRun) else "tokens"
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
