"""Everything that can be asked of a GPU, as jobs of the queue; later work adds its own here."""

from gkalib.bench import correctness, decoding, smooth, training, tuning
from gkalib.bench.job import FUSED, Job
from gkalib.bench.registry import Comparison, benchmarks
from gkalib.bench.run import run

COMPARED = ("fused", "summary", "gpu", "arms", "rivals", "shapes", "roofline", "measure", "run")
CASE = 12.0  # seconds of a case that has no estimate of its own


def jobs() -> list[Job]:
    """Correctness, block sizes, benchmarks of fused operations, training, the rest; the most urgent first."""
    known = [*correctness.jobs(), *comparisons(), *tuning.jobs(), *training.jobs(), *sweeps()]
    return sorted(known, key=lambda job: job.priority)


def comparisons() -> list[Job]:
    """Each shape of each benchmark that compares arms."""
    methods = (f"smoothing/{name}.py" for name in ("dispatch", "flex", "padded"))
    depends = (*FUSED, *methods, *(f"bench/{name}.py" for name in COMPARED))
    return [
        Job(
            name=f"bench-{name}-{case['shape']}",
            priority=_priority(name, case["shape"]),
            seconds=benchmark.seconds(case),
            call=f"{__name__}:measured",
            arguments={"benchmark": name, "shape": case["shape"]},
            depends=(*depends, "models", "attention", "bench/models.py") if name == "models" else depends,
            warm=f"{__name__}:warmed",
        )
        for name, benchmark in benchmarks().items()
        if isinstance(benchmark, Comparison)
        for case in benchmark.shapes("full", "cuda")
    ]


def _priority(name: str, shape: str) -> int:
    """GKA and whole models come first; other types of numbers and inference last."""
    if shape.endswith(("float16", "float32")):
        return 29
    if name == "models":
        return 30 if shape.endswith("inference") else 24
    return {"gka": 23, "rbf": 25, "gpa": 26, "karat": 27, "decode": 28}.get(name, 31)


def sweeps() -> list[Job]:
    """Each benchmark over lengths that runs on a GPU."""
    return [
        Job(
            name=f"bench-{name}",
            priority=80,
            seconds=CASE * len(benchmark.cases("full", "cuda")),
            call=f"{__name__}:measured",
            arguments={"benchmark": name},
            depends=(*FUSED, "smoothing", "attention", "models", f"bench/{name}.py", "bench/measure.py"),
        )
        for name, benchmark in {"smooth": smooth.BENCHMARK, "decoding": decoding.BENCHMARK}.items()
    ]


def measured(benchmark: str, shape: str | None = None, *, device: str) -> None:
    """Run a benchmark, or one shape of it, and keep the rows.

    Raises:
        RuntimeError: if there are none: then the job is not done.
    """
    if not run(benchmark, [] if shape is None else [shape], device=device, keep=True, apart=False):
        raise RuntimeError(f"reproduce: {benchmark} gave no rows")


def warmed(benchmark: str, shape: str, *, device: str) -> None:
    """Compile what a shape of a benchmark will start."""
    known = benchmarks()[benchmark]
    assert isinstance(known, Comparison) and known.rehearse is not None
    (case,) = (case for case in known.shapes("full", device) if case["shape"] == shape)
    known.rehearse(case)
