"""The numbers that stand behind a printed cell: what an arm's newest runs measured, or what makes it run."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

from gkalib.results import SCALES, Record, load, rows
from gkalib.results.claims import millions
from gkalib.results.record import RUN

from .claims import Cell
from .tables import read

SIZES = tuple(reversed(SCALES[1:]))  # a smoke run is no measurement
NAMES = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "imagenet": "ImageNet",
    "fashion-mnist": "Fashion-MNIST",
    "digits": "handwritten digits",
    "dickens": "Dickens",
    "tinystories": "TinyStories",
    "tinystories-pieces": "TinyStories",
    "tinystories-full": "TinyStories",
    "fineweb-edu": "FineWeb-Edu",
}
# By experiment, what the paper's own models are called where they are counted.
WHOLE = {
    "gka-imagenet-tiny": ("{arm}-ti",),
    "karat-cifar10": ("karat-{arm}",),
    "gpa-dickens": ("gpa",),
    "gpa-characters": ("gpa",),
    "gpa-novels": ("gpa",),
    "gpa-novels-1000": ("gpa",),
    "gpa-novels-3000": ("gpa",),
    "gpa-bump": ("gpa",),
    "rbf-arms": ("rbf-tiny",),
    "rbf-stories": ("rbf-tiny",),
}
# Experiments that measure a trained run, an arm for each.
LATER = {"core": "core", "evaluated": "evaluated", "looked": "looking"}


@final
@dataclass(frozen=True, kw_only=True)
class Series:
    """A number of the newest runs of an arm at its largest scale, by seed.

    Args:
        status: "full" if the runs are those that the paper describes, else "reduced".
        values: of each seed.
        record: one of the runs.
    """

    status: str
    values: dict[int, float]
    record: Record

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return sum(self.values.values()) / len(self.values)

    @property
    def said(self) -> str:
        """Which runs they are, where they ran, and how many seeds they have."""
        words = [self.record.device, *["a busy machine"] * self.record.busy]
        seeds = "one seed" if len(self.values) == 1 else f"{len(self.values)} seeds"
        return f"in {self.record.experiment}/{self.record.arm} ({', '.join([*filter(None, words), seeds])})"


@final
@dataclass
class Runs:
    """The runs in a store, and what could run.

    Args:
        store: the folder ``data/results``.
    """

    store: Path

    @cached_property
    def steps(self) -> dict[tuple[str, str, str], str]:
        """By kind, name and arm: the steps of a recipe's arm, and nothing for studies and benchmarks."""
        rows = read(self.store / "papers" / "arms.csv")
        return {(row["kind"], row["name"], row["arm"]): row["steps"] for row in rows}

    @cached_property
    def stored(self) -> set[tuple[str, str, str]]:
        """Experiment, arm and scale of every run in the store."""
        folders = (path.parent for path in self.store.glob("[!.]*/[!.]*/run.json"))
        named = ((folder.parent.name, RUN.fullmatch(folder.name)) for folder in folders)
        return {(experiment, name["arm"], name["scale"]) for experiment, name in named if name}

    def scale(self, experiment: str, arm: str) -> str | None:
        """The largest scale at which an arm has run, smoke left out."""
        return next((scale for scale in SIZES if (experiment, arm, scale) in self.stored), None)

    def scale_of(self, record: Record, cell: Cell | None = None, *, beside: Iterable[Record] = ()) -> str:
        """The size of a run, with units: parameters, resolution or context, data, steps and what else counts.

        Args:
            record: of the run.
            cell: that it stands behind; its row may be the model whose size is given beside the run's.
            beside: runs of other arms that it is compared with; their numbers of parameters are given too.
        """
        recipe = record.recipe.get("run") or record.recipe
        model = recipe["model"] if isinstance(recipe.get("model"), dict) else {}
        data = recipe["data"] if isinstance(recipe.get("data"), dict) else {}
        task = recipe.get("task") or ("" if data else recipe.get("data")) or ""
        words = []
        if "parameters" in record.metrics:
            names = [
                cell.row if cell else "",
                *(name.format(arm=record.arm) for name in WHOLE.get(record.experiment, ())),
            ]
            whole = next((self.counted[name] for name in names if name in self.counted), None)
            counts = sorted(float(one.metrics["parameters"]) for one in (record, *beside))
            sizes = dict.fromkeys(millions(count) for count in (counts[0], counts[-1]))
            words.append(" to ".join(sizes) + (f" of {millions(whole)}" if whole else ""))
        pixels, context = model.get("image_size"), model.get("context") or data.get("context")
        words += [f"{pixels} px"] if pixels else [f"context {context}"] if context else []
        words += [NAMES.get(task, task)] if task else []
        wraps = {_wrap(one.recipe) for one in (record, *beside)} - {None}
        words += [f"lines of {' and '.join(map(str, sorted(wraps)))}"] if wraps else []
        if isinstance(recipe.get("steps"), int):
            words.append(f"{recipe['steps']:,} steps of {recipe.get('batch')}")
        words += [
            f"{name.strip('.')} at {factor:g} × the rate"
            for name, factor in (recipe.get("rates") or {}).items()
            if factor != 1
        ]
        return ", ".join(words)

    @cached_property
    def counted(self) -> dict[str, int | float]:
        """The parameters of each model that was counted."""
        found = load("counts", root=self.store) if (self.store / "counts").is_dir() else []
        return {record.arm: record.metrics["parameters"] for record in found}

    def panels(self, record: Record, names: list[str], axes: list[str]) -> int:
        """How many panels a record's figures of these names have: different values of its axes, at least."""
        kept = rows(record, root=self.store)
        places = [
            {tuple(row[axis] for axis in axes) for row in kept if row.get("figure") == name} for name in names
        ]
        return min(map(len, places))

    def known(self, kind: str, name: str, arm: str) -> None:
        """Refuse what cannot be run.

        Raises:
            ValueError: if it is not in ``arms.csv``.
        """
        if (kind, name, arm) not in self.steps:
            raise ValueError(f"{kind} {name} {arm} is not in arms.csv: no such thing can be run")

    def series(self, kind: str, key: str) -> Series | None:
        """What a key names, or None where it has not run.

        Args:
            kind: ``train`` for recipes, ``core`` for their scores on tasks, ``evaluated`` for their
                bits per byte of training text, ``looked`` for what a look at them counts, ``study`` or
                ``bench``.
            key: experiment, arm and metric, or for a benchmark its shape and the metric.

        Raises:
            ValueError: if the key names nothing that has run or can be run.
        """
        parts = key.split("/", 2) if kind != "bench" else ["bench", *key.split("/", 1)]
        if len(parts) != 3:
            raise ValueError(f"{kind} {key} is no key")
        experiment, arm, metric = parts
        place = (LATER[kind], f"{experiment}-{arm}") if kind in LATER else (experiment, arm)
        scale = self.scale(*place)
        if kind != "study" or scale is None:
            self.known("train" if kind in LATER else kind, experiment, arm)
        records = self.newest(*place, card=kind == "bench")
        if kind in LATER:  # what a command measures depends on how it was asked
            records = [one for one in records if set(re.split(r"[-/]", metric)) <= one.metrics.keys()]
        if not records:
            return None
        recipe = records[0].recipe
        as_printed = {
            "train": str(recipe.get("steps")) == self.steps.get(("train", experiment, arm)),
            "core": not recipe.get("limit"),
            "evaluated": True,
            "looked": True,
        }
        return Series(
            status="full" if scale == "full" and as_printed.get(kind) else "reduced",
            values={record.seed: measured(record, metric) for record in records},
            record=records[0],
        )

    def newest(self, experiment: str, arm: str, *, card: bool = False) -> list[Record]:
        """The newest run of each seed at the largest scale, measured from a clean tree.

        All have the device and the settings of the newest.

        Args:
            experiment, arm: of which runs.
            card: whether it has to be a GPU.
        """
        scale = self.scale(experiment, arm)
        runs = load(experiment, scale=scale, arm=arm, root=self.store) if scale else []
        runs = [run for run in runs if run.clean and run.source == "measured"]
        runs = [run for run in runs if not card or run.recipe.get("device") == "cuda"]
        seeds: dict[int, Record] = {}
        for run in runs:
            if (run.device, run.settings) == (runs[0].device, runs[0].settings):
                seeds.setdefault(run.seed, run)
        return [seeds[seed] for seed in sorted(seeds)]


def _wrap(recipe: Mapping[str, Any]) -> int | None:
    """The width of the lines of a run's text."""
    recipe = recipe.get("run") or recipe
    data = recipe["data"] if isinstance(recipe.get("data"), dict) else {}
    return recipe.get("wrap") or data.get("wrap")


def measured(record: Record, metric: str) -> float:
    """A metric of a record, or the difference or the ratio of two.

    Raises:
        ValueError: if the record does not have it.
    """
    names = re.split(r"[-/]", metric)
    missing = [name for name in names if name not in record.metrics]
    if missing:
        raise ValueError(f"{record.experiment}/{record.run} has no metric {missing[0]!r}")
    first, *rest = (float(record.metrics[name]) for name in names)
    if not rest:
        return first
    return first - rest[0] if "-" in metric else first / rest[0]


def command(kind: str, key: str) -> str:
    """What to type for a number that is not there yet."""
    name, arm = key.split("/")[:2]
    paper = "--paper gpa " if name == "gpa-dickens" else ""  # which counts lines and removes heads
    return {
        "train": f"python -m gkalib train {name} --keep --arm {arm}",
        "study": f"python -m chapters.experiments {name} {arm}",
        "looked": f"python -m gkalib look RUN {paper}--keep, for a run of {name}, arm {arm}",
        "core": f"python -m gkalib evaluate RUN --keep --tasks TASK, for a run of {name}, arm {arm}",
        "evaluated": f"python -m gkalib evaluate RUN --training --keep, for a run of {name}, arm {arm}",
        "bench": f"python -m gkalib bench {name.replace('-', ' ', 1)} --device cuda --keep",
    }[kind]
