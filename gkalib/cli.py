"""The command line, ``python -m gkalib COMMAND``: a class a command, its fields the arguments and options."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, final

import tyro
from tyro.conf import OmitArgPrefixes, Positional
from tyro.constructors import PrimitiveConstructorSpec

from gkalib.training.config import LaunchConfig

PROGRAM = "python -m gkalib"
Device = Literal["cpu", "cuda"]
Dtype = Literal["float64", "float32", "bfloat16", "float16"]
Kernel = Literal[
    "gaussian", "exp-dot", "laplace", "matern", "rational-quadratic", "epanechnikov", "boxcar", "tricube"
]
Normalizer = Literal["row-sum", "unnormalized", "top-k", "simplex"]
Scale = Literal["smoke", "reduced", "full"]


def _positive(words: list[str]) -> int:
    try:
        number = int(words[0])
    except ValueError:
        raise ValueError(f"must be a whole number, not {words[0]!r}") from None
    if number < 1:
        raise ValueError(f"must be at least 1, not {number}")
    return number


Positive = Annotated[
    int, PrimitiveConstructorSpec(1, "N", _positive, lambda value: isinstance(value, int), lambda n: [str(n)])
]
SIZE = tyro.conf.create_mutex_group(required=False)
SUBJECT = tyro.conf.create_mutex_group(required=False)


@final
@dataclass(frozen=True)
class Data:
    """List, fetch or check the data sets.

    Its actions: list says what there is, and what of it is on this machine; get fetches what is missing, and
    checks it; check compares what is here with the registered checksums, and fetches nothing.
    """

    action: Positional[Literal["list", "get", "check"]]
    name: Positional[tuple[str, ...]] = ()  # data sets; all of them where none is named

    def __call__(self) -> None:
        """Print a line a data set."""
        from gkalib.data import registry

        names = self.name or tuple(registry.DATASETS)
        if self.action == "list":
            width = max(map(len, names))
            for name in names:
                state = "here" if registry.ready(name) else "to fetch"
                print(f"{name:<{width}}  {state:<8}  {registry.registered(name).description}")
            return
        for name in names:
            if self.action == "check" and not self.name and not registry.ready(name):
                print(f"{name}: not here, so not checked")
                continue
            (registry.get if self.action == "get" else registry.check)(name)
            checksum = registry.registered(name).sha256
            print(f"{name}: {f'as registered, sha256 {checksum}' if checksum else 'as the hub states it'}")


@final
@dataclass(frozen=True)
class Results:
    """List the experiments that have recorded runs, or show the runs of one as a table."""

    action: Positional[Literal["list", "table"]]
    experiment: Positional[str] = ""  # its name, as list prints it
    metric: Positional[tuple[str, ...]] = ()  # columns to show; all of them where none is named
    scale: Scale | None = None  # only runs of this scale

    def __call__(self) -> None:
        """Print the list or the table."""
        from gkalib.results import experiments, load, table

        if self.action == "table":
            print(table(self.experiment, *self.metric, scale=self.scale))
        else:
            for name in experiments():
                print(f"{name}  {len(load(name))} runs")


@final
@dataclass(frozen=True)
class Explain:
    """Print which smoothing methods can compute a problem, which cannot, and why."""

    kernel: Kernel = "gaussian"  # similarity function
    sigma: float = 1.0  # its bandwidth
    normalizer: Normalizer = "row-sum"  # scores to weights
    top: Positive = 8  # keys that top-k keeps
    causal: bool = False  # mask the keys after the query
    window: Positive | None = None  # mask the keys that are so many positions away, or more
    queries: Positive = 1024  # how many
    keys: Positive | None = None  # how many; as many as queries
    heads: Positive = 4  # of the queries
    key_heads: Positive | None = None  # heads of keys and values; as many as heads
    head_dim: Positive = 64  # width of a head
    value_dim: Positive | None = None  # width of a value; that of a head
    dtype: Dtype = "float32"  # element type
    device: Device = "cpu"  # where

    def __call__(self) -> None:
        """Print a line a method."""
        import torch

        from gkalib import explain, kernels, masks, normalizers

        if self.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("explain: no GPU can be reached from here; --device cpu asks about this machine")
        kind = getattr(kernels, self.kernel.title().replace("-", ""))
        rule = getattr(normalizers, self.normalizer.title().replace("-", ""))
        kernel = kind() if self.kernel == "exp-dot" else kind(self.sigma)
        normalizer = rule(self.top) if self.normalizer == "top-k" else rule()
        window = masks.Window(self.window) if self.window else None
        mask = masks.joined(masks.Causal() if self.causal else None, window)
        like: dict[str, Any] = {"dtype": getattr(torch, self.dtype), "device": self.device}
        heads, keys = self.key_heads or self.heads, self.keys or self.queries
        query = torch.zeros(1, self.heads, self.queries, self.head_dim, **like)
        key = torch.zeros(1, heads, keys, self.head_dim, **like)
        value = torch.zeros(1, heads, keys, self.value_dim or self.head_dim, **like)
        print(explain(query, key, value, kernel, mask=mask, normalizer=normalizer))


@final
@dataclass(frozen=True)
class Variants:
    """Print what each variant of attention is and what one layer of it costs, as a table in Markdown."""

    dim: Positive = 192  # width of a token; ViT-Ti's
    heads: Positive = 3  # how many
    tokens: tuple[Positive, ...] = (196, 784)  # numbers of tokens at which memory is measured

    def __call__(self) -> None:
        """Print the table."""
        from gkalib.models import overview, overview_table

        print(overview_table(overview(self.dim, self.heads, self.tokens), self.tokens))


@final
@dataclass(frozen=True)
class Train:
    """Train a recipe of a paper.

    It runs at full size unless --smoke or --reduced is given, and goes on where it was stopped. Every setting
    of it is an option too; --settings lists them. Under torchrun the work is shared.
    """

    name: Positional[str]  # a recipe, for example gpa-dickens
    arm: tuple[str, ...] = ()  # arms of it; the first where none is named
    smoke: Annotated[bool, SIZE] = False  # the same code at tiny sizes: seconds on a CPU
    reduced: Annotated[bool, SIZE] = False  # minutes on one GPU, or smaller on two cores
    seed: int = 0  # the first seed
    seeds: Positive = 1  # how many seeds
    plan: bool = False  # show sizes, cost and launch lines, and train nothing
    settings: bool = False  # list every setting that can be given, and train nothing
    launch: OmitArgPrefixes[LaunchConfig] = field(default_factory=LaunchConfig)

    def __call__(self, words: Sequence[str] = ()) -> None:
        """Train the chosen arms one after the other, with the settings that the words change."""
        from gkalib import experiments, training
        from gkalib.training.launch import chosen_run, device_of, plan

        if self.name in (*experiments.experiments(), *experiments.MEASURED):
            raise ValueError(f"train: {self.name!r} is no recipe; type: {PROGRAM} experiment {self.name}")
        recipe, device = training.recipe(self.name), device_of(self.launch.device)
        scale = "smoke" if self.smoke else "reduced" if self.reduced else "full"
        words = ["--help"] if self.settings else words
        for arm in self.arm or [None]:
            for seed in range(self.seed, self.seed + self.seeds):
                config = chosen_run(self.name, arm, scale=scale, seed=seed, device=device, words=words)
                if self.plan:
                    print(plan(recipe, config, self.launch))
                    continue
                record = training.train(config, self.launch)
                if os.environ.get("RANK", "0") == "0":  # under torchrun every process is here
                    numbers = "  ".join(f"{name} {value:.6g}" for name, value in record.metrics.items())
                    print(f"{recipe.name} {record.run}  {numbers}", flush=True)


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
        from gkalib.training.trained import open_run

        return open_run(self.run, step=self.step, averaged=self.average), start(self.device)


@final
@dataclass(frozen=True)
class Evaluate:
    """Measure a trained model on its held-out data, or score a model of text on benchmark tasks."""

    trained: OmitArgPrefixes[Trained]
    tasks: tuple[str, ...] = ()  # CORE's, for example hellaswag; the held-out data where none is named
    whole: bool = False  # all held-out data, not what the run's record is of
    limit: Positive | None = None  # questions of a task at most; all
    shots: int | None = None  # examples before each question; as CORE has it
    keep: bool = False  # keep the record of the tasks in data/results

    def __call__(self) -> None:
        """Print a line a number, or a line a task."""
        from gkalib.training import record

        model, processes = self.trained.open()
        say = print if processes.main else (lambda *words, **options: None)
        say(f"{model.config.experiment}, {model.config.arm}, {model.config.scale}, step {model.step:,}")
        if not self.tasks:
            measured = record.evaluate(model, processes, whole=self.whole)
            say(*record.number_lines(model, *measured), sep="\n")
            return
        scores = record.score_tasks(model, processes, self.tasks, limit=self.limit, shots=self.shots)
        say(*record.task_lines(scores), sep="\n")
        if self.keep:
            say(record.record_tasks(model, processes, scores, limit=self.limit).name)


@final
@dataclass(frozen=True)
class Save:
    """Store a finished run's model in data/models, where the other commands find it by its name.

    Stored are its weights, the moving average of them where the run has one, its settings and its record.
    """

    run: Positional[Path]  # a run's folder
    name: Positional[str]  # words in lower case joined by hyphens
    device: Device | None = None  # where its held-out part is measured; a GPU where there is one

    def __call__(self) -> None:
        """Print where it is stored, and a line a number."""
        from gkalib.training import save
        from gkalib.training.trained import models

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
        """Print the prompt and what follows."""
        from gkalib.training.record import generate

        settings = {"count": self.count, "temperature": self.temperature, "seed": self.seed}
        print(generate(*self.trained.open(), self.prompt, **settings))


@final
@dataclass(frozen=True)
class Look:
    """Draw what a trained model does inside: rollout, maps of attention, bandwidths or banks, spectra.

    One picture, or one text, is read; with --held-out the numbers are those of that many held-out items.
    """

    trained: OmitArgPrefixes[Trained]
    picture: Annotated[str | None, SUBJECT] = None  # astronaut, camera, cat, coffee, or a file; the cat
    text: Annotated[str | None, SUBJECT] = None  # what a model of text reads; a sentence of Dickens
    held_out: Positive | None = None  # numbers of so many held-out items; of the one that is drawn
    out: Path | None = None  # a folder for the figures; looks/RECIPE/ARM-SCALE-sSEED, or looks/NAME
    keep: bool = False  # keep the record in data/results

    def __call__(self) -> None:
        """Write the figures and say which."""
        try:
            from gkalib.experiments.inspect_run import inspect_run
        except ModuleNotFoundError as missing:
            remedy = "pip install 'gkalib[vision,language,book]'"
            raise ValueError(f"look: needs {missing.name}: {remedy}") from missing

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
        )
        print(*lines, sep="\n")


@final
@dataclass(frozen=True)
class Experiment:
    """Run an experiment that chapters quote, and keep a record of each arm and seed."""

    name: Positional[str]  # for example variants-digits
    arm: Positional[tuple[str, ...]] = ()  # arms of it; all of them where none is named
    seed: int = 0  # the first seed
    seeds: Positive = 1  # how many seeds
    smoke: bool = False  # what is trained takes a few steps
    missing: bool = False  # only arms and seeds that have no record of the same recipe
    rates: bool = False  # choose the learning rate of each arm instead, on a seed of its own
    threads: Positive = 1  # of PyTorch, for what is trained

    def __call__(self) -> None:
        """Print a line a record."""
        from gkalib.experiments.runner import run

        run(**{"arms" if name == "arm" else name: value for name, value in vars(self).items()})


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
    """Choose the block sizes of the fused programs by time, on a CUDA device."""

    program: Positional[tuple[str, ...]] = ()  # as configs.json names them; all where none is named
    recorded: bool = False  # choose by the recorded times, and time nothing

    def __call__(self) -> None:
        """Print what changed."""
        from gkalib.gpu import tune

        if not self.recorded:
            tune.run(self.program)
        changes = tune.adopt()
        changes.append(f"{len(changes)} entries changed; record the programs anew: make aot UPDATE=1")
        print(*changes, sep="\n")


@final
@dataclass(frozen=True)
class Reproduce:
    """Run the GPU work whose results are missing or stale, the most urgent first, as much as fits the time.

    Safe to stop and to repeat. With --out nothing is written to data/results; there, --unpack saves the pack.
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


EVERY = (
    *(Data, Results, Explain, Variants, Train, Save, Evaluate, Generate, Look),
    *(Experiment, Bench, Tune, Reproduce),
)
COMMANDS: dict[str, type] = {command.__name__.lower(): command for command in EVERY}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; an error that a user can mend is one line and status 2."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    config = (tyro.conf.FlagCreatePairsOff,)
    try:
        if words[:1] == ["train"]:  # what it does not know are settings of the recipe
            train, rest = tyro.cli(
                Train, args=words[1:], prog=f"{PROGRAM} train", config=config, return_unknown_args=True
            )
            train(rest)
        else:
            about = "Attention as kernel regression."
            tyro.extras.subcommand_cli_from_dict(
                COMMANDS, args=words, prog=PROGRAM, description=about, config=config
            )()
        sys.stdout.flush()
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    except BrokenPipeError:  # who reads, head for example, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0
