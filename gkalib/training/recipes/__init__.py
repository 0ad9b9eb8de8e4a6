"""The papers' experiments: every file has a list ``RECIPES`` of what it can train."""

import pkgutil
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module

from gkalib.training.config import NAMES, Recipe, TrainConfig


def recipes() -> dict[str, Recipe]:
    """Every recipe by its name."""
    modules = [import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    return {recipe.name: recipe for module in modules for recipe in module.RECIPES}


def recipe(name: str) -> Recipe:
    """The recipe of that name.

    Raises:
        ValueError: if there is none.
    """
    by_name = recipes()
    if name not in by_name:
        raise ValueError(f"train: no recipe {name!r}. Known: {', '.join(sorted(by_name))}")
    return by_name[name]


def chosen_runs(
    name: str,
    arms: Sequence[str],
    seeds: Sequence[int],
    *,
    scale: str = "full",
    device: str = "cuda",
    words: Sequence[str] = (),
) -> list[TrainConfig]:
    """The runs of a recipe at a scale, with the settings that words of a command line change, arm by arm.

    Args:
        name: of the recipe.
        arms: of it; ``all`` is all of them, none its first.
        seeds: of each arm.
        scale: ``full``, ``reduced`` or ``smoke``.
        device: ``cpu`` or ``cuda``, which decides the size of a reduced run.
        words: settings.

    Raises:
        ValueError: if there is no such recipe, arm or scale, or the settings do not fit together.
    """
    if scale not in ("full", "reduced", "smoke"):
        raise ValueError(f"train: scale must be smoke, reduced or full, not {scale!r}")
    known, runs = recipe(name), []
    for arm in known.arms if list(arms) == ["all"] else arms or [None]:
        run = known.run(arm)
        if scale != "full":
            run = run.smoke() if scale == "smoke" else run.reduced(device)
        runs += [apply_settings(replace(run, seed=seed), words) for seed in seeds]
    return runs


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
            raise ValueError(f"train: {name} is chosen by --arms, --smoke, --reduced and --seed, not set")
    if isinstance(updated.attention, str) and updated.attention != config.attention:
        updated = replace(updated, arm=f"{config.arm}-{updated.attention.replace('_', '-')}")
    return replace(updated, smaller=config.smaller)
