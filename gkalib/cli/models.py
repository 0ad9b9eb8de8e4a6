"""Commands that train models of the recipes, and those that use a trained one."""

import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, final

import tyro
from tyro.conf import OmitArgPrefixes, Positional

from gkalib.cli.library import Device, Positive
from gkalib.training.config import LaunchConfig

SIZE = tyro.conf.create_mutex_group(required=False)
OWN = {"--plan": 0, "--gpus": 1, "--device": 1, "--card": 1}  # of the plan, not of its lines
SUBJECT = tyro.conf.create_mutex_group(required=False)


@final
@dataclass(frozen=True)
class Train:
    """Train a recipe of a paper; without a name, list the recipes.

    It runs at full size unless --smoke or --reduced is given, goes on where it was stopped, and skips what
    has ended. Every setting of it is an option too; --settings lists them. With --gpus the work is shared by
    torchrun, models are compiled on cards, and records kept.
    """

    name: Positional[str] = ""  # a recipe, for example gpa-dickens
    arms: Annotated[tuple[str, ...], tyro.conf.arg(aliases=["--arm"])] = ()  # arms of it, or all; the first
    smoke: Annotated[bool, SIZE] = False  # the same code at tiny sizes: seconds on a CPU
    reduced: Annotated[bool, SIZE] = False  # minutes on one GPU, or smaller on two cores
    seed: tuple[int, ...] = (0,)  # the first seed, or each of them
    seeds: Positive = 1  # how many seeds, from the first on
    gpus: int | None = None  # train on so many cards of this machine; 0 is the CPU
    card: str = "H100"  # whose hours the plan shows
    plan: bool = False  # show sizes, cost and launch lines, and train nothing
    settings: bool = False  # list every setting that can be given, and train nothing
    launch: OmitArgPrefixes[LaunchConfig] = field(default_factory=LaunchConfig)

    def __call__(self, given: Sequence[str] = (), words: Sequence[str] = ()) -> None:
        """Train the chosen arms one after the other.

        Args:
            given: the words of the command line.
            words: those of them that are settings of the recipe.
        """
        import torch

        from gkalib.training import recipes
        from gkalib.training.launch import Launch
        from gkalib.training.recipes import chosen_runs
        from gkalib.training.record import train_all

        if not self.name:
            known = recipes()
            for name, recipe in known.items():
                print(f"{name:<{max(map(len, known))}}  {recipe.summary}")
            return
        if len(self.seed) > 1 < self.seeds:
            raise ValueError(
                "train: --seeds counts from the first --seed; give it or several of --seed, not both"
            )
        first, gpus = self.seed[0], self.gpus
        if gpus is None:
            on_cpu = self.launch.device == "cpu" or not (self.launch.device or torch.cuda.is_available())
            gpus = 0 if on_cpu else max(1, torch.cuda.device_count())
        runs = chosen_runs(
            *(self.name, self.arms, self.seed if len(self.seed) > 1 else range(first, first + self.seeds)),
            scale="smoke" if self.smoke else "reduced" if self.reduced else "full",
            device="cuda" if gpus else "cpu",
            words=["--help"] if self.settings else words,
        )
        if self.launch.out is not None and len(runs) > 1:
            raise ValueError(
                f"train: --out is the folder of one run, and these are {len(runs)}: leave it out"
            )
        if not self.plan and self.gpus is None:
            train_all(runs, self.launch)
            return
        found = Launch(runs, _without(given, OWN), gpus=gpus, card=self.card)
        if self.plan:
            print(found.plan)
        else:
            found.check()
            os.execv(sys.executable, found.command)


def _without(words: Sequence[str], options: Mapping[str, int]) -> list[str]:
    """The words without some options, each with how many words follow it."""
    kept, skipped = [], 0
    for word in words:
        name, equals, _ = word.partition("=")
        if name in options:
            skipped = 0 if equals else options[name]
        elif skipped:
            skipped -= 1
        else:
            kept.append(word)
    return kept


@final
@dataclass(frozen=True)
class Trained:
    """A trained model."""

    run: Positional[Path]  # a run's folder, one of its checkpoints, or a name in data/models
    step: int | None = None  # which checkpoint; the newest
    average: bool = False  # take the moving average of the weights
    device: Device | None = None  # where; a GPU where there is one

    def open(self) -> tuple[Any, Any]:
        """The model, and the processes that share the work."""
        from gkalib.training.distributed import start
        from gkalib.training.record import open_run

        return open_run(self.run, step=self.step, averaged=self.average), start(self.device)


@final
@dataclass(frozen=True)
class Evaluate:
    """Measure a trained model on its held-out data, or score one of text on tasks."""

    trained: OmitArgPrefixes[Trained]
    tasks: tuple[str, ...] = ()  # CORE's, for example hellaswag; the held-out data where none is named
    whole: bool = False  # all held-out data, not what the run's record is of
    limit: Positive | None = None  # questions of a task at most; all
    shots: int | None = None  # examples before each question; as CORE has it
    training: bool = False  # the bits per byte of as much training text too, and what is between
    keep: bool = False  # keep the record in data/results

    def __call__(self) -> None:
        """Print a line a number, or a line a task."""
        from gkalib.training import record

        model, processes = self.trained.open()
        say = print if processes.main else (lambda *words, **options: None)
        say(f"{model.config.experiment}, {model.config.arm}, {model.config.scale}, step {model.step:,}")
        if self.tasks:
            found = record.score_tasks(model, processes, self.tasks, limit=self.limit, shots=self.shots)
        else:
            found = record.evaluate(model, processes, whole=self.whole, training=self.training)
        say(*found.lines, sep="\n")
        if self.keep:
            say(record.keep_record(model, processes, found).name)


@final
@dataclass(frozen=True)
class Submit:
    """Check a run that has ended, and keep its record for a pull request.

    Its recipe, settings, code, data, curve and last checkpoint are compared with what they have to be.
    """

    run: Positional[Path]  # a run's folder

    def __call__(self) -> None:
        """Print what to commit."""
        from gkalib.training.submit import submit

        place = submit(self.run)
        print(f"{place}\nTo send it in, commit this folder and open a pull request.")


@final
@dataclass(frozen=True)
class Save:
    """Store a finished run's model in data/models, where it is found by its name.

    Stored are its weights, the moving average of them where the run has one, its settings and its record.
    """

    run: Positional[Path]  # a run's folder
    name: Positional[str]  # words in lower case joined by hyphens
    device: Device | None = None  # where its held-out part is measured; a GPU where there is one

    def __call__(self) -> None:
        """Print where it is stored, and a line a number."""
        from gkalib.training import save
        from gkalib.training.checkpoint import models

        numbers = save(self.run, self.name, device=self.device)
        size = sum(path.stat().st_size for path in (models() / self.name).iterdir())
        print(f"{models() / self.name}, {size / 2**20:.2f} MiB")
        print(*(f"{name:<13} {value:.6g}" for name, value in numbers.items()), sep="\n")


@final
@dataclass(frozen=True)
class Generate:
    """Let a trained model of text write."""

    trained: OmitArgPrefixes[Trained]
    prompt: str = ""  # what it begins with
    count: Positive = 200  # tokens to write
    temperature: float = 0.8  # 0 takes the likeliest
    seed: int = 0  # of the draws

    def __call__(self) -> None:
        """Print the prompt and what follows; what there is to warn of goes to stderr, a line each."""
        from gkalib.training.record import generate

        settings = {"count": self.count, "temperature": self.temperature, "seed": self.seed}
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("once")
            text = generate(*self.trained.open(), self.prompt, **settings)
        print(text)
        print(*(each.message for each in said), sep="\n", end="\n" if said else "", file=sys.stderr)


@final
@dataclass(frozen=True)
class Look:
    """Draw what a trained model does inside: rollout, maps, bandwidths or banks, spectra.

    One picture, or one text, is read. With --held-out the numbers are those of that many held-out items, and
    the landscape of their loss around three checkpoints or more is drawn.
    """

    trained: OmitArgPrefixes[Trained]
    picture: Annotated[str | None, SUBJECT] = None  # astronaut, camera, cat, coffee, or a file; the cat
    text: Annotated[str | None, SUBJECT] = None  # what a model of text reads; a sentence of Dickens
    held_out: Positive | None = None  # numbers of so many held-out items; of the one that is drawn
    paper: Literal["gka", "gpa", "rbf", "karat"] | None = None  # its figures alone, under its numbers
    out: Path | None = None  # a folder for the figures; looks/RECIPE/ARM-SCALE-sSEED, or looks/NAME
    keep: bool = False  # keep the record in data/results

    def __call__(self) -> None:
        """Write the figures and say which."""
        from gkalib.experiments.inspect_run import inspect_run

        model, processes = self.trained.open()
        run, is_text = model.config, bool(model.tokenizer_json)
        subject, other = ("text", "picture") if is_text else ("pictures", "text")
        if getattr(self, other) is not None:
            raise ValueError(f"look: {run.experiment} reads {subject}: leave --{other} out")
        of_run = Path(run.experiment) / f"{run.arm}-{run.scale}-s{run.seed}"
        lines = inspect_run(
            *(model, processes),
            folder=self.trained.run,
            subject=self.picture or self.text,
            held_out=self.held_out or 0,
            out=self.out or "looks" / (of_run if self.trained.run.is_dir() else self.trained.run),
            keep=self.keep,
            paper=self.paper,
        )
        print(*lines, sep="\n")
