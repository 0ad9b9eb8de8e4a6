"""Everything that can be asked of a GPU, as jobs of the queue; later work adds its own here.

What the goals need comes in three batches, each of at most nine minutes on a card: whether results are right
and which block sizes are fastest, what single operations take, what whole models take.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

from gkalib import results
from gkalib.bench import fused, models, others
from gkalib.bench.cases import Comparison
from gkalib.bench.goals import GOALS, Goal
from gkalib.bench.run import run
from gkalib.gpu import correctness, invariance, tune
from gkalib.gpu.trainings import TRAININGS
from gkalib.smoothing.fused import configs

PACKAGE = Path(__file__).resolve().parents[1]
FUSED = (
    "smoothing/fused",
    "smoothing/problem.py",
    "smoothing/spans.py",
    "kernels",
    "normalizers",
    "masks.py",
)
"""The code that the results of fused operations depend on. Of block sizes the queue itself keeps account."""
COMPARED = tuple(f"bench/{name}.py" for name in ("arms", "cases", "fused", "roofline", "run", "timing"))
WHOLE = (".", "smoothing/fused/configs.json")
"""What any result depends on."""
BATCHES = {
    1: "right, and which block sizes",
    2: "single operations",
    3: "whole models, and what may hang",
}
"""What the batches are for."""
HANGS = 30.0
"""Seconds after which a warp-specialized program is stopped: a wrong barrier waits for ever."""


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
        ahead: how long that will take, one compiler at work.
        batch: in which of the BATCHES it is; 0 in none.
        limit: seconds after which it is stopped; where not given, three times its estimate.
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
    ahead: float = 60.0
    batch: int = 0
    limit: float | None = None

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
    """The batches, then training, rivals, sweeps and the other block sizes; the most urgent first."""
    every = [
        *_checks(),
        *_invariances(),
        *_limits(),
        *_tunings(),
        *_goals(),
        *_models(),
        *_rivals(),
        *_trainings(),
        *_sweeps(),
    ]
    return sorted(every, key=lambda job: job.priority)


CHECKED = ("smoothing/fused", "gpu/correctness.py", "gpu/operations.py")
TYPES = ("bfloat16", "float16")
"""In which the batches check operations."""
LATE = ("gka-specialized", "rbf-unnormalized")
"""The operations that are checked after the batches: what may hang, and a form that no paper has."""


def _check(operation: str, types: list[str], **fields: Any) -> Job:
    """A check of an operation in some types; what may hang comes last and is stopped soon."""
    special = operation == "gka-specialized"
    late = {"priority": 95, "limit": 4 * HANGS} if special else {}
    return Job(
        **{
            "name": "-".join(["correctness", operation, *types]),
            "priority": 50,
            "seconds": 75.0,  # mostly of compilation
            "call": "gkalib.gpu.correctness:run",
            "arguments": {"operation": operation, "types": types},
            "depends": (*FUSED, *CHECKED),
            "alone": False,
        }
        | late
        | fields
    )


def _checks() -> Iterator[Job]:
    """Each operation, on a GPU in each type; of warp-specialized programs one shape in the last batch."""
    for operation in correctness.OPERATIONS:
        for dtype in correctness.types_of(operation, "cuda"):
            first = {"priority": 10, "batch": 1} if operation not in LATE and dtype in TYPES else {}
            yield _check(operation, [dtype], **first)
        yield _check(operation, [], devices=("cpu",))
    yield _check(
        "gka-specialized",
        ["bfloat16"],
        name="first-gka-specialized",
        priority=39,
        batch=3,
        limit=HANGS,
        seconds=20.0,
        arguments={"operation": "gka-specialized", "types": ["bfloat16"], "most": 1},
    )


def _invariances() -> Iterator[Job]:
    """The same problem put differently, and one of more numbers than 32 bits count."""
    depends = (*FUSED, *CHECKED, "gpu/invariance.py")
    common: dict[str, Any] = {"devices": ("cuda", "cpu"), "alone": False, "depends": depends, "batch": 1}
    for operation in invariance.OPERATIONS:
        for dtype in TYPES if operation == "rbf" else TYPES[:1]:
            yield Job(
                name=f"invariance-{operation}-{dtype}",
                priority=11,
                seconds=40.0,
                call="gkalib.gpu.invariance:run",
                arguments={"operation": operation, "dtype": dtype},
                **common,
            )
    for name, seconds in (("large", 75.0), ("races", 90.0)):
        yield Job(name=name, priority=11, seconds=seconds, call=f"gkalib.gpu.invariance:{name}", **common)


def _limits() -> Iterator[Job]:
    """What the device reaches, what a node and a call cost, and where the time of a short problem goes."""
    depends = (*FUSED, "gpu/limits.py", "bench/roofline.py", "bench/timing.py")
    common: dict[str, Any] = {"devices": ("cuda", "cpu"), "depends": depends}
    for name, batch, seconds in (("ceilings", 1, 25.0), ("profile", 2, 40.0)):
        yield Job(
            name=name,
            priority=12 if batch == 1 else 29,
            seconds=seconds,
            call=f"gkalib.gpu.limits:{name}",
            batch=batch,
            **common,
        )


FIRST = (
    "gka_forward", "gka_backward", "gka_forward_described", "gka_backward_head", "smooth_forward",
    "smooth_backward_query", "smooth_backward_key", "decode_split",
)  # fmt: skip
"""The programs whose block sizes the goals wait for."""


def _tunings() -> Iterator[Job]:
    """Each program at the papers' widths in 16 bits, and last everything else of it."""
    table = configs.table()
    for program in table:
        needed = program in FIRST
        late: dict[str, Any] = {"limit": 4 * HANGS} if "specialized" in program else {}
        first = {"priority": 13 + FIRST.index(program), "batch": 1} if needed else {"priority": 55}
        if late:
            first = {"priority": 96}
        for prefix, widths, bits in (("tune", (64, 128), (16,)), ("rest", (), ())):
            entries = list(tune.entries(table, [program], widths, bits))
            count = sum(len(table[name][str(width)][kind]["candidates"]) for name, width, kind in entries)
            if entries:
                yield Job(
                    name=f"{prefix}-{program.replace('_', '-')}",
                    seconds=8.0 + 0.7 * (3 if program in tune.ASKED_OFTEN else 1) * count,
                    call="gkalib.gpu.tune:run",
                    arguments={"programs": [program], "widths": [*widths], "bits": [*bits]},
                    depends=("smoothing/fused",),
                    warm="gkalib.gpu.tune:compiled",
                    **(first if prefix == "tune" else {"priority": 97 if late else 90}),
                    **late,
                )


SHAPES = (
    "gka-vit-ti", "gka-vit-s", "gka-vit-b", "decode-gka", "gpa-dickens", "karat-vit-ti", "karat-vit-s",
    "karat-vit-b", "rbf-article-2048", "rbf-article-8192", "rbf-text", "gka-text", "gka-text-1024",
    "gka-text-512", "gpa-text",
)  # fmt: skip
"""The second batch: the shapes of the goals, in the order in which they are timed."""
SDPA = ("sdpa-cudnn", "sdpa-flash")


def arms_of(record: str) -> list[str]:
    """Ours and the rivals that the goals of a shape name, and what of ours is to be set side by side."""
    named = {_rival(goal) for goal in GOALS if goal.record == record}
    windowed = record.removeprefix("gka-text-").isdigit()
    softmax = (*(f"{name}-unwindowed" for name in SDPA), "flex-softmax") if windowed else SDPA
    chosen = ["fused"]
    if record.startswith("rbf"):
        chosen += ["fused-unordered"]
    if record.startswith("gka-text"):
        chosen += ["fused-unordered", *(() if windowed else ("fused-plain", "fused-described"))]
    return (
        chosen
        + [name.replace("_", "-") for name in sorted(named - {"sdpa"})]
        + ([*softmax] if "sdpa" in named else [])
    )


def _rival(goal: Goal) -> str:
    """What the number of a goal is set against, of a metric that reads ratio_<rival>_<pass>."""
    return goal.metric.partition("_")[2].rpartition("_")[0]


METHODS = ("smoothing/methods/flex.py", "smoothing/methods/padded.py")


def _timed(prefix: str, benchmark: str, case: dict[str, Any], arms: list[str] | None, **fields: Any) -> Job:
    """One shape of a benchmark, with these arms or all."""
    comparison = {**fused.BENCHMARKS, **models.BENCHMARKS}[benchmark]
    assert isinstance(comparison, Comparison)
    chosen = {} if arms is None else {"arms": arms}
    whole = ("models", "layers", "bench/models.py") if benchmark == "models" else ()
    return Job(
        name=f"{prefix}-{benchmark}-{case['shape']}",
        ahead=100.0 if whole else 60.0,
        seconds=comparison.seconds({**case, **chosen}),
        call="gkalib.gpu.jobs:measured",
        arguments={"benchmark": benchmark, "shape": case["shape"], **chosen},
        depends=(*FUSED, *METHODS, *COMPARED, *whole),
        devices=("cuda", "cpu") if prefix == "bench" else ("cuda",),
        warm="gkalib.gpu.jobs:warmed",
        **fields,
    )


def _cases(benchmark: str) -> dict[str, dict[str, Any]]:
    comparison = {**fused.BENCHMARKS, **models.BENCHMARKS}[benchmark]
    return {case["shape"]: case for case in comparison.shapes("full", "cuda")}


def _goals() -> Iterator[Job]:
    """The shapes of the goals with the arms that the goals compare."""
    for turn, record in enumerate(SHAPES):
        benchmark, _, shape = record.partition("-")
        early = {"priority": 20 + (turn > 3) + (turn > 7) + (turn > 10), "batch": 2}
        yield _timed("bench", benchmark, _cases(benchmark)[shape], arms_of(record), **early)


def _models() -> Iterator[Job]:
    """Whole models: training, then inference."""
    for shape, case in _cases("models").items():
        arms = ["gka-fused", *(f"deit-{name}" for name in SDPA)]
        priority = 31 if shape.endswith("inference") else 30
        yield _timed("bench", "models", case, arms, priority=priority, batch=3)


RIVALS = ("gka-vit-ti",)
"""The shapes that every rival is timed on in the second batch."""
COLD = 20.0
"""Seconds that it takes longer where what compiles was not compiled ahead."""


def _rivals() -> Iterator[Job]:
    """Every shape with all its arms; it takes the place of the same with few."""
    for benchmark in (*fused.BENCHMARKS, *models.BENCHMARKS):
        for shape, case in _cases(benchmark).items():
            soon = f"{benchmark}-{shape}" in RIVALS
            job = _timed("rivals", benchmark, case, None, priority=28 if soon else 70)
            yield replace(job, batch=2, warm="", seconds=job.seconds + COLD) if soon else job


def _trainings() -> Iterator[Job]:
    """Each training run that chapters wait for: reduced on a GPU, smoke on a CPU."""
    for turn, (name, arm, seconds) in enumerate(TRAININGS):
        yield Job(
            name=f"train-{name}-{arm}",
            priority=60 + turn,
            seconds=seconds,
            call="gkalib.gpu.trainings:trained",
            arguments={"name": name, "arm": arm},
            depends=(*FUSED, "training", "data", "models", "layers", "smoothing"),
            devices=("cuda", "cpu"),
            alone=False,
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


def measured(benchmark: str, shape: str | None = None, arms: Sequence[str] = (), *, device: str) -> None:
    """Run a benchmark, or one shape of it with all arms or some, and keep the rows; on a CPU in small.

    Raises:
        RuntimeError: if there are none: then the job is not done.
    """
    scale, shapes = "full" if device == "cuda" else "smoke", [] if shape is None else [shape]
    if scale == "smoke" and shape is not None:
        small = {**fused.BENCHMARKS, **models.BENCHMARKS}[benchmark].shapes(scale, device)
        if shape not in [case["shape"] for case in small]:
            print(f"{benchmark} {shape} has no small form")
            return
    if not run(benchmark, shapes, arms=arms, device=device, scale=scale, keep=True, apart=False):
        raise RuntimeError(f"reproduce: {benchmark} gave no rows")


def warmed(benchmark: str, shape: str, arms: Sequence[str] = (), *, device: str) -> None:
    """Compile what a shape of a benchmark will start."""
    comparison = {**fused.BENCHMARKS, **models.BENCHMARKS}[benchmark]
    (case,) = (case for case in comparison.shapes("full", device) if case["shape"] == shape)
    assert comparison.rehearse is not None
    comparison.rehearse({**case, **({"arms": [*arms]} if arms else {})})
