"""From settings to a launch: what a command line overrides, what a run costs, the lines that start it."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, final

import torch

from gkalib.models import Count, count
from gkalib.training.config import (
    LOADERS,
    NAMES,
    LanguageConfig,
    LaunchConfig,
    Recipe,
    TrainConfig,
    VisionConfig,
)
from gkalib.training.recipes import recipe, recipes

PEAK = 989e12  # dense bf16 operations per second of an H100, as NVIDIA states them
SHARE = 0.3  # of which we count on
# Images that a core reads and augments in a second, as measured: of ImageNet's size, of 32 × 32 pixels
# enlarged to 224, and of 32 × 32.
PHOTOGRAPHS, ENLARGED_PICTURES, SMALL_PICTURES = 202, 402, 2532


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


def chosen_run(
    name: str, arm: str | None, *, scale: str, seed: int, device: str, words: Sequence[str] = ()
) -> TrainConfig:
    """The run of a recipe's arm at a scale, with the settings that words of a command line change.

    Raises:
        ValueError: if there is no such recipe, arm or scale, or the settings do not fit together.
    """
    config = replace(recipe(name).run(arm), seed=seed)
    if scale == "smoke":
        config = config.smoke()
    elif scale == "reduced":
        config = config.reduced(device)
    elif scale != "full":
        raise ValueError(f"train: scale must be smoke, reduced or full, not {scale!r}")
    return apply_settings(config, words)


def cost(config: TrainConfig) -> Cost:
    """What a run costs, counted on its model without computing anything."""
    with torch.device("meta"):
        model = config.build()
    if isinstance(config, VisionConfig):
        side = config.model.image_size
        counts = count(model, torch.empty(1, config.model.channels, side, side, device="meta"))
        items, per_item = config.steps * config.batch, 3 * counts.flops
    else:
        assert isinstance(config, LanguageConfig)
        counts = count(model, torch.empty(1, config.model.context, dtype=torch.long, device="meta"))
        items = config.steps * config.items
        per_item = counts.flops_per_token or 3 * counts.flops // config.model.context
    return Cost(count=counts, items=items, operations=float(items * per_item))


def apply_settings(config: TrainConfig, words: Sequence[str]) -> TrainConfig:
    """The configuration with what is given as ``--lr 3e-4 --model.depth 6``; ``--help`` lists the settings.

    A run with another attention than its arm's is no run of this arm, so it gets a name, a folder and a
    record of its own: ``deit`` with ``--attention rbf`` is called ``deit-rbf``.

    Raises:
        ValueError: if the settings do not fit together, or an option of the command chooses one of them.
        SystemExit: if there is no such setting, or a value has another type.
    """
    if not words:
        return config
    import tyro  # imported here: a job that trains has no command line

    updated = tyro.cli(
        type(config),
        default=replace(config, smaller={}),
        args=words,
        prog=f"python -m gkalib train {config.experiment} --arm {config.arm}",
        description=f"Settings of {config.experiment}, arm {config.arm}, {config.scale} scale.",
        compact_help=True,
    )
    for name in NAMES:
        if getattr(updated, name) != getattr(config, name):
            raise ValueError(f"train: {name} is chosen by --arm, --smoke, --reduced and --seed, not set")
    if isinstance(updated.attention, str) and updated.attention != config.attention:
        updated = replace(updated, arm=config.arm + _suffix(updated))
    return replace(updated, smaller=config.smaller)


def launch_lines(config: TrainConfig, launch: LaunchConfig | None = None) -> dict[str, str]:
    """The command of a run on one GPU, on eight, and on two machines of eight under SLURM.

    Every setting that is not the recipe's own is in it, and every option of the launch. Where the parts of a
    step cannot be shared evenly, the line makes them smaller. What is reduced for a CPU has one line.

    Args:
        config: what is to be trained.
        launch: where and how; where it names no workers, a line has as many as a common host has.
    """
    launch = launch or LaunchConfig()
    words, on_cpu = _changed_settings(config)
    words = [*_words(LaunchConfig(), replace(launch, device=None, workers=None, compile=False)), *words]
    scale = {"full": "", "reduced": " --reduced", "smoke": " --smoke"}[config.scale]
    seed = f" --seed {config.seed}" if config.seed else ""
    call = f"-m gkalib train {config.experiment} --arm {recipe_arm(config)}{scale}{seed}"
    settings = "".join(f" {word}" for word in words)
    loaders = LOADERS if launch.workers is None else launch.workers
    loading = f" --workers {loaders}" if isinstance(config, VisionConfig) else ""
    if on_cpu:
        return {"CPU": f"python {call} --device cpu{settings}"}
    call = f"{call} --compile{loading}{settings}"
    two = "torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint"
    node = "$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1):29500"
    eight = f"torchrun --standalone --nproc-per-node 8 {call}{_parts_option(config, 8)}"
    wrapped = shlex.quote(f"srun {two} {node} {call}{_parts_option(config, 16)}")
    return {
        "one GPU": f"python {call}",
        "eight GPUs": eight,
        "SLURM": f"sbatch --nodes 2 --ntasks-per-node 1 --gpus-per-node 8 --wrap {wrapped}",
    }


def data_hours(config: VisionConfig, *, workers: int) -> float:
    """Hours in which the loaders of one GPU read the images of a run, whatever it computes."""
    if config.model.image_size <= 64:
        rate = SMALL_PICTURES
    else:
        rate = ENLARGED_PICTURES if config.data.startswith("cifar") else PHOTOGRAPHS
    return config.steps * config.batch / (rate * max(1, workers)) / 3600


def recipe_arm(config: TrainConfig) -> str:
    """The arm of the recipe that a run was made from, before its attention was changed."""
    recipe = recipes().get(config.experiment)
    if recipe is None or config.arm in recipe.arms or not isinstance(config.attention, str):
        return config.arm
    return config.arm.removesuffix(_suffix(config))


def _suffix(config: TrainConfig) -> str:
    """What the attention of a run adds to the name of its arm."""
    return "-" + config.attention.replace("_", "-")


def _changed_settings(config: TrainConfig) -> tuple[list[str], bool]:
    """The words that make the recipe's own run of that scale this one; and whether it is that of a CPU."""
    recipe, arm = recipes().get(config.experiment), recipe_arm(config)
    if recipe is None or arm not in recipe.arms:
        return [], False
    base = replace(recipe.run(arm), seed=config.seed)
    if config.scale == "smoke":
        return _words(base.smoke(), config), False
    if config.scale == "reduced":
        on_card, on_cpu = (_words(base.reduced(device), config) for device in ("cuda", "cpu"))
        return (on_cpu, True) if len(on_cpu) < len(on_card) else (on_card, False)
    return _words(base, config), False


def _words(base: Any, config: Any, prefix: str = "") -> list[str]:
    """Settings in which two configurations differ, as words of a command line."""
    words: list[str] = []
    for field in fields(base):
        old, new = getattr(base, field.name), getattr(config, field.name)
        name = prefix + field.name.replace("_", "-")
        if old == new or field.name in (*NAMES, "smaller"):
            continue
        if is_dataclass(old):
            words += _words(old, new, f"{name}.")
        elif isinstance(new, bool):
            words.append(f"--{name}" if new else f"--{prefix}no-{name.removeprefix(prefix)}")
        elif isinstance(old, Mapping) and old:  # then each of its keys has a name of its own
            for key in [key for key in new if new[key] != old.get(key)]:
                words += [f"--{name}.{key.strip('.').replace('_', '-')}", str(new[key])]
        else:
            if isinstance(new, Mapping):
                values = [word for pair in new.items() for word in pair]
            else:
                values = list(new) if isinstance(new, list | tuple) else [new]
            words += [f"--{name}", *(shlex.quote(str(value)) for value in values)]
    return words


def _parts_option(config: TrainConfig, processes: int) -> str:
    """The option with which so many processes can share a step: the largest parts that they can."""
    if config.parts % processes == 0:
        return ""
    sizes = [size for size in range(1, config.part + 1) if config.batch % (size * processes) == 0]
    return f" --device-batch {sizes[-1]}" if sizes else f" --batch {processes * config.part}"


def device_of(name: str | None) -> str:
    """The device that a launch will use."""
    return name or ("cuda" if torch.cuda.is_available() else "cpu")


def plan(recipe: Recipe, config: TrainConfig, launch: LaunchConfig | None = None) -> str:
    """What a run is, what it will cost, and how to launch it, in lines."""
    estimate, launch = cost(config), launch or LaunchConfig()
    lines = [
        f"{recipe.name}: {recipe.summary}",
        f"paper        {recipe.paper}: {recipe.expects}",
        f"arms         {', '.join(recipe.arms)}",
        f"this run     {config.arm}, {config.scale}, seed {config.seed}, data {config.data}",
        f"parameters   {estimate.count.parameters:,}, of attention {estimate.count.attention_parameters:,}",
        f"training     {config.steps:,} steps of {config.batch:,}, {estimate.items:,} {config.unit} in all",
        f"operations   {estimate.operations:.5g}, or {estimate.hours:.2g} hours of one H100 at 30 % of its "
        "peak",
    ]
    if isinstance(config, VisionConfig):
        loaders = LOADERS if launch.workers is None else launch.workers
        hours = data_hours(config, workers=loaders)
        more = "more than computing takes" if hours > estimate.hours else "less than computing takes"
        lines.append(f"data         {hours:.2g} hours for {max(1, loaders)} cores that load images, {more}")
    launches = launch_lines(config, launch)
    return "\n".join([*lines, *(f"{where:<11}  {line}" for where, line in launches.items())])
