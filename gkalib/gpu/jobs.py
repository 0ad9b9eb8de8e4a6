"""Everything that can be asked of a GPU, as jobs of the queue; later work adds its own here."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

from gkalib import results
from gkalib.bench import fused, models, others
from gkalib.bench.cases import Comparison
from gkalib.bench.run import run
from gkalib.gpu import correctness, tune
from gkalib.smoothing.fused import configs

PACKAGE = Path(__file__).resolve().parents[1]
FUSED = (
    "smoothing/fused",
    "smoothing/fused/configs.json",
    "smoothing/problem.py",
    "smoothing/spans.py",
    "kernels",
    "normalizers",
    "masks.py",
)
"""What the results of fused operations depend on."""
COMPARED = tuple(f"bench/{name}.py" for name in ("arms", "cases", "fused", "roofline", "run", "timing"))
WHOLE = (".", "smoothing/fused/configs.json")
"""What any result depends on."""


@final
@dataclass(frozen=True, kw_only=True)
class Job:
    """One piece of work with a process and a time limit of its own.

    It is done on a device when the store holds the run ``reproduce/<name>`` of that device with the hash of
    the code it depends on; its results are whatever the function it calls saves through ``results.save``.

    Args:
        name: lower case with hyphens; the arm of the run that notes it.
        priority: the smallest goes first.
        seconds: how long it will take; replaced by what it took where it ran on this device before.
        call: ``"module:function"``; it is called with ``device`` (``"cuda"`` or ``"cpu"``) and the arguments.
        arguments: JSON.
        depends: files and folders below ``gkalib`` whose code decides the result; of a folder the Python.
        devices: on which kinds of device it can run.
        alone: whether its times count, so that nothing else may run meanwhile.
        warm: what is called before with the same arguments, beside other such calls, where a card is: it
            compiles what the job will start and saves nothing.
    """

    name: str
    priority: int
    seconds: float
    call: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    depends: tuple[str, ...] = (".",)
    devices: tuple[str, ...] = ("cuda",)
    alone: bool = True
    warm: str = ""

    def code(self) -> str:
        """The hash of the code it depends on, of its call and its arguments."""
        call = results.digest({"call": self.call, **self.arguments})
        return hashlib.sha256(f"{call} {code_hash(*self.depends)}".encode()).hexdigest()[:12]


def code_hash(*parts: str) -> str:
    """The first 12 digits of the SHA-256 over files below ``gkalib`` and the Python in folders, or WHOLE."""
    names = {path for part in parts or WHOLE for path in _sources(PACKAGE / part)}
    hasher = hashlib.sha256()
    for path in sorted(names):
        hasher.update(f"{path.relative_to(PACKAGE).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return hasher.hexdigest()[:12]


def _sources(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from path.rglob("*.py")
    elif path.exists():
        yield path
    else:
        raise ValueError(f"reproduce: a job depends on {path.relative_to(PACKAGE)}, which is not in gkalib")


def jobs() -> list[Job]:
    """Correctness, block sizes, benchmarks of fused operations, training, the rest; the most urgent first."""
    every = [*_checks(), *_comparisons(), *_tunings(), *_trainings(), *_sweeps()]
    return sorted(every, key=lambda job: job.priority)


def _checks() -> Iterator[Job]:
    """Each operation, on a GPU in each type; warp-specialized programs first."""
    for operation, kind in correctness.OPERATIONS.items():
        for device in correctness.DTYPES:
            types = correctness.types_of(operation, device)
            for selected in [[dtype] for dtype in types] if device == "cuda" else [[]]:
                yield Job(
                    name="-".join(["correctness", operation, *selected]),
                    priority=9 if kind.halves else 10,
                    seconds=75.0,  # mostly of compilation
                    call="gkalib.gpu.correctness:run",
                    arguments={"operation": operation, "types": selected},
                    depends=(*FUSED, "gpu/correctness.py", "gpu/operations.py"),
                    devices=(device,),
                    alone=False,
                )


def _tunings() -> Iterator[Job]:
    """Each program at the papers' widths in 16 bits, and last everything else of it."""
    table = configs.table()
    order = ("gka_forward", "gka_backward", *configs.STAND_INS)
    for program in table:
        first = 12 + order.index(program) if program in order else 16 + (not program.startswith("smooth"))
        for prefix, priority, widths, bits in (("tune", first, (64, 128), (16,)), ("rest", 90, (), ())):
            entries = list(tune.entries(table, [program], widths, bits))
            count = sum(len(table[name][str(width)][kind]["candidates"]) for name, width, kind in entries)
            if entries:
                yield Job(
                    name=f"{prefix}-{program.replace('_', '-')}",
                    priority=priority,
                    seconds=8.0 + 0.7 * (3 if program in tune.ASKED_OFTEN else 1) * count,
                    call="gkalib.gpu.tune:run",
                    arguments={"programs": [program], "widths": [*widths], "bits": [*bits]},
                    depends=("smoothing/fused",),
                    warm="gkalib.gpu.tune:compiled",
                )


def _comparisons() -> Iterator[Job]:
    """Each shape of each benchmark that compares arms: GKA and whole models first; other types last."""
    methods = ("smoothing/methods/flex.py", "smoothing/methods/padded.py")
    depends = (*FUSED, *methods, *COMPARED)
    urgency = {"gka": 23, "rbf": 25, "gpa": 26, "karat": 27, "decode": 28}
    for name, benchmark in {**fused.BENCHMARKS, **models.BENCHMARKS}.items():
        assert isinstance(benchmark, Comparison)
        for case in benchmark.shapes("full", "cuda"):
            shape, whole = case["shape"], name == "models"
            priority = (30 if shape.endswith("inference") else 24) if whole else urgency[name]
            yield Job(
                name=f"bench-{name}-{shape}",
                priority=29 if shape.endswith(("float16", "float32")) else priority,
                seconds=benchmark.seconds(case),
                call="gkalib.gpu.jobs:measured",
                arguments={"benchmark": name, "shape": shape},
                depends=(*depends, "models", "layers", "bench/models.py") if whole else depends,
                warm="gkalib.gpu.jobs:warmed",
            )


def _sweeps() -> Iterator[Job]:
    """Each benchmark over lengths that runs on a GPU."""
    for name in ("smooth", "decoding"):
        yield Job(
            name=f"bench-{name}",
            priority=80,
            seconds=12.0 * len(others.BENCHMARKS[name].cases("full", "cuda")),
            call="gkalib.gpu.jobs:measured",
            arguments={"benchmark": name},
            depends=(*FUSED, "smoothing", "layers", "models", "bench/others.py", "bench/timing.py"),
        )


def measured(benchmark: str, shape: str | None = None, *, device: str) -> None:
    """Run a benchmark, or one shape of it, and keep the rows.

    Raises:
        RuntimeError: if there are none: then the job is not done.
    """
    if not run(benchmark, [] if shape is None else [shape], device=device, keep=True, apart=False):
        raise RuntimeError(f"reproduce: {benchmark} gave no rows")


def warmed(benchmark: str, shape: str, *, device: str) -> None:
    """Compile what a shape of a benchmark will start."""
    comparison = {**fused.BENCHMARKS, **models.BENCHMARKS}[benchmark]
    (case,) = (case for case in comparison.shapes("full", device) if case["shape"] == shape)
    assert comparison.rehearse is not None
    comparison.rehearse(case)


# Recipe, arm, seconds: in the order in which chapters need them. The seconds are guesses until one has run.
TRAININGS = (
    *(("gpa-dickens", arm, 240.0) for arm in ("rope", "bank", "bank-rope")),
    *(("rbf-tinystories", arm, 90.0) for arm in ("standard", "rbf", "rbf-registers")),
    *(("gka-imagenet-tiny", arm, 240.0) for arm in ("deit", "gka")),
    *(("gpa-dickens", arm, 240.0) for arm in ("bank-unwrapped", "bank-rope-unwrapped")),
    *(("karat-cifar10", arm, 300.0) for arm in ("tiny-softmax", "tiny-g3b", "tiny-g3u")),
)
LOADERS = 3  # processes that load pictures for a run, where several run side by side

# A machine that is lent for its GPU has no network: stories of the 2 MiB sample, by the model of two cores in
# larger steps.
SAMPLED = {"rbf-tinystories": {"batch": 64, "device_batch": 64, "steps": 400}}


def _trainings() -> Iterator[Job]:
    """Each training run that chapters wait for: reduced on a GPU, smoke on a CPU."""
    for turn, (name, arm, seconds) in enumerate(TRAININGS):
        yield Job(
            name=f"train-{name}-{arm}",
            priority=60 + turn,
            seconds=seconds,
            call="gkalib.gpu.jobs:trained",
            arguments={"name": name, "arm": arm},
            depends=(*FUSED, "training", "data", "models", "layers", "smoothing"),
            devices=("cuda", "cpu"),
            alone=False,
        )


def trained(name: str, arm: str, *, device: str) -> None:
    """Train one arm of a recipe, reduced on ``"cuda"`` and as a smoke run on ``"cpu"``, and keep the record.

    A run that was stopped goes on from its checkpoint in the folder of runs.
    """
    from gkalib.training import LaunchConfig, train
    from gkalib.training.config import VisionConfig

    chosen, on_card = training_run(name, arm, device), device == "cuda"
    workers = LOADERS if on_card and isinstance(chosen, VisionConfig) else 0
    launch = LaunchConfig(device=device, compile=on_card, workers=workers, save_every=60.0)
    train(chosen, replace(launch, keep=True, quiet=True))


def training_run(name: str, arm: str, device: str) -> Any:
    """The run of a training job; one card takes a whole step at once, which changes a result by rounding."""
    from gkalib.training import recipe

    full = recipe(name).run(arm)
    if device == "cpu":
        return full.smoke()
    chosen = replace(full.reduced("cpu"), **SAMPLED[name]) if name in SAMPLED else full.reduced(device)
    return replace(chosen, device_batch=chosen.batch)
