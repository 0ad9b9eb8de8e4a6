"""Choose each program's block sizes by time: on a card, run every candidate of an entry and keep the fastest.

One that does not compute what the shipped one does is out. Nothing is tuned while a model runs.
``python -m gkalib tune`` times the candidates of configs.json and rewrites what it ships; ``make aot
UPDATE=1`` then records what the choice compiles to. The clock is an argument, so that the choice is tested
without a card.
"""

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from gkalib import results
from gkalib.bench import timing
from gkalib.bench.attention import TOLERANCE, relative_error
from gkalib.gpu.samples import CALLS, Call, Sample, prepared
from gkalib.smoothing.fused import configs, proved
from gkalib.smoothing.fused.configs import TABLE, Config, Table, forced, forget, served
from gkalib.smoothing.fused.launch import collected

Clock = Callable[[Call], float]
"""Milliseconds of a call."""
Computed = Callable[[Call], Sequence[Tensor]]
"""What a call computes."""

EXPERIMENT = "tuning"
TESTS = "correctness", "tests"
"""Experiment and arm of the runs that say how the tests on a card ended."""

UNTESTED = ("gka_forward_specialized", "gka_backward_specialized")
"""Programs that no test runs on a card, since a wrong barrier hangs: they are not shipped."""

ALLOWED = 10
"""Times the tolerance that a candidate's result may lie from that of the shipped one."""

WORTH = 0.98
"""Another configuration is shipped only if it takes at most this much of the time of the one that was."""

LONG: dict[str, Any] = {"length": 2048, "batch": 4, "heads": 16}
SHORT: dict[str, Any] = {"length": 197, "batch": 256, "heads": 6}
"""What an entry is timed on; a card has 132 processors to fill."""


@dataclass(frozen=True)
class Timing:
    """How long one candidate of one entry takes in one case; infinite where it cannot run, or is wrong.

    Args:
        program, width, kind: the entry.
        case: the sample call, which may start other programs too.
        config: rows, columns, warps and stages; nothing for the plain program in the place of this one.
        ms: of the whole call.
    """

    program: str
    width: int
    kind: str
    case: str
    config: tuple[int, ...]
    ms: float


def entries(
    table: Table, programs: Sequence[str] = (), widths: Sequence[int] = (), bits: Sequence[int] = ()
) -> Iterator[tuple[str, int, str]]:
    """The entries of a table that leave a choice: program, width and kind; of those named, if any are."""
    for unknown in set(programs) - set(table):
        raise ValueError(f"tune: no program {unknown!r} in the table. Known: {', '.join(sorted(table))}")
    for program in programs or sorted(table):
        for width, kinds in table[program].items():
            for kind, entry in kinds.items():
                selected = not widths or int(width) in widths
                selected &= not bits or int(kind.split()[0]) in bits
                if selected and len(entry["candidates"]) > 1:
                    yield program, int(width), kind


def cases(program: str, width: int, kind: str) -> list[Sample]:
    """The sample calls in which a program asks for an entry."""
    words = kind.split()
    samples = []
    for name in CALLS:
        if name in configs.STAND_INS:  # with block sizes of their own
            continue
        case = Sample(
            name,
            width,
            torch.bfloat16 if words[0] == "16" else torch.float32,
            "band" if "masked" in words else "all",
            **(SHORT if "short" in words or name.startswith("row_features") else LONG),
        )
        with collected(), served() as requests:
            prepared(replace(case, batch=1, heads=1))()
        if (program, width, kind) in requests:
            samples.append(case)
    return samples


def require(device: str) -> None:
    """Refuse a device that is not there."""
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("tune: block sizes are chosen on a CUDA device, and there is none here")


def _computed(call: Call) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(call()) if isinstance(leaf, Tensor)]


def _compare(actual: Sequence[Tensor], expected: Sequence[Tensor], dtype: torch.dtype) -> None:
    """Raise where one of the tensors is not the expected one up to rounding."""
    allowed = ALLOWED * TOLERANCE[str(dtype).removeprefix("torch.")]
    for one, other in zip(actual, expected, strict=True):
        error = relative_error(one, other.double())
        if not error <= allowed:  # NaN is no number that is allowed
            raise ValueError(f"its result is off by {error:.1e}, more than {allowed:.0e}")


def time_candidates(
    clock: Clock,
    table: Table,
    programs: Sequence[str] = (),
    widths: Sequence[int] = (),
    bits: Sequence[int] = (),
    *,
    device: str = "cuda",
    computed: Computed | None = None,
) -> Iterator[Timing]:
    """Time every candidate of the entries that leave a choice.

    Args:
        clock: what times; table: whose entries; programs, widths, bits: of those, all where none is named.
        device: where the tensors lie.
        computed: what a call computes; a candidate for which that is not what it is for the one that is
            shipped takes an infinite time. Nothing is compared where it is not given.

    Raises:
        ValueError: if there is no card, or a program is not in the table.
        RuntimeError: if a candidate takes the device with it.
    """
    require(device)
    for program, width, kind in entries(table, programs, widths, bits):
        entry = table[program][str(width)][kind]
        for case in cases(program, width, kind):
            on_card = replace(case, device=device)
            call = prepared(on_card)
            expected = None
            for sizes in sorted(entry["candidates"], key=lambda sizes: sizes != entry["shipped"]):
                with choice(table, program, width, kind, sizes):
                    try:
                        if computed is not None:
                            actual = computed(call)
                            expected = expected or actual
                            _compare(actual, expected, case.dtype)
                        ms = clock(call)
                    except Exception as error:  # too much shared memory, for one, which is no RuntimeError
                        print(f"tune: {program} {width} {kind} is out with {sizes}: {error}", flush=True)
                        ms = math.inf
                yield Timing(program, width, kind, case.name, tuple(sizes), ms)
                if ms == math.inf and device == "cuda":
                    torch.cuda.synchronize()  # raises if the device is lost: what follows would count as slow


@contextmanager
def choice(table: Table, program: str, width: int, kind: str, sizes: Sequence[int]) -> Iterator[None]:
    """Within it a program has these block sizes; with none, the plain one that it stands in for runs."""
    if sizes:
        with forced(Config(*sizes), program):
            yield
        return
    plain = configs.STAND_INS[program]
    kinds = table[plain][str(width)]
    with forced(Config(*kinds.get(kind, kinds[kind.split()[0]])["shipped"]), plain):
        yield


def choose(table: Table, timings: Iterable[Timing]) -> Table:
    """The table with the fastest candidate of every timed entry shipped, by the mean ratio over its cases."""
    changed = json.loads(json.dumps(table))
    times: dict[tuple[str, int, str], dict[tuple, dict[str, float]]] = {}
    for each in timings:
        entry = times.setdefault((each.program, each.width, each.kind), {})
        entry.setdefault(each.config, {})[each.case] = each.ms
    for (program, width, kind), entry in times.items():
        target = changed.get(program, {}).get(str(width), {}).get(kind)
        if target is None:
            continue
        base = entry.get(tuple(target["shipped"]), {})

        def relative(config: tuple, entry=entry, base=base) -> float:
            """The geometric mean of its times over those of what was shipped."""
            own_times = entry[config]
            if not all(map(math.isfinite, own_times.values())):
                return math.inf
            bases = {
                case: base[case] if math.isfinite(base.get(case, math.inf)) else 1.0 for case in own_times
            }
            return math.exp(
                sum(math.log(ms / bases[case]) for case, ms in own_times.items()) / len(own_times)
            )

        best = min(entry, key=relative)
        whole = bool(base) and all(map(math.isfinite, base.values()))
        if math.isfinite(relative(best)) and (not whole or relative(best) <= WORTH):
            target["shipped"] = list(best)
    return changed


def text(table: Table) -> str:
    """A table as JSON, an entry a line."""
    programs = []
    for program, widths in sorted(table.items()):
        lines = []
        for width in sorted(widths, key=int):
            kinds = ",\n".join(
                f"   {json.dumps(kind)}: {json.dumps(widths[width][kind])}" for kind in sorted(widths[width])
            )
            lines.append(f"  {json.dumps(width)}: {{\n{kinds}\n  }}")
        programs.append(f" {json.dumps(program)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(programs) + "\n}\n"


def write(changed: Table, path: Path = TABLE) -> None:
    """Write a table where it is read from then on."""
    path.write_text(text(changed))
    forget()


def rows(timings: Iterable[Timing]) -> list[dict[str, Any]]:
    """Timings as rows of a record."""
    return [asdict(each) | {"config": " ".join(map(str, each.config))} for each in timings]


def timings(recorded: Iterable[dict[str, str]]) -> list[Timing]:
    """And back."""
    return [
        Timing(
            row["program"],
            int(row["width"]),
            row["kind"],
            row["case"],
            tuple(map(int, row["config"].split())),
            float(row["ms"]),
        )
        for row in recorded
    ]


def run(
    programs: Sequence[str] = (),
    widths: Sequence[int] = (),
    bits: Sequence[int] = (),
    *,
    device: str = "cuda",
) -> None:
    """Time the candidates of these programs, or of all, and keep a record for each.

    Raises:
        ValueError: if there is no card, or a program is not in the table.
    """
    require(device)
    table = by_record()
    names = list(dict.fromkeys(program for program, _, _ in entries(table, programs, widths, bits)))
    for program in names:
        start, failure = time.perf_counter(), None
        times: list[Timing] = []
        try:
            for each in time_candidates(
                _clock, table, [program], widths, bits, device=device, computed=_computed
            ):
                print(each, flush=True)
                times.append(each)
        except RuntimeError as error:
            failure = error
        if not times:
            continue
        changed = choose(table, times)
        timed = {(each.width, each.kind) for each in times}
        changes = sum(
            changed[program][str(width)][kind]["shipped"] != table[program][str(width)][kind]["shipped"]
            for width, kind in timed
        )
        name = "-".join([program.replace("_", "-"), *(f"d{width}" for width in widths)])
        timing.keep(
            EXPERIMENT,
            name,
            {"entries": len(timed), "timings": len(times), "changes": changes},
            rows(times),
            device="cuda",
            scale="full",
            recipe={"program": program, "table": table[program], "widths": [*widths], "bits": [*bits]},
            wall_seconds=time.perf_counter() - start,
        )
        if failure is not None:
            raise failure
        table = changed


def by_record(stores: Sequence[Path] = ()) -> Table:
    """The table as the times recorded in these stores would have it, the newest last.

    A program that stands in for another is chosen only if the tests were right on every card that ran them.
    """
    table, roots = configs.table(), list(stores) or [results.folder()]
    wrong = [run.metrics["wrong"] for run in tested(roots)]
    barred = UNTESTED if wrong and not any(wrong) else configs.STAND_INS
    for record, root in _records(EXPERIMENT, roots):
        times = timings(results.rows(record, root=root))
        table = choose(table, [each for each in times if not each.config or each.program not in barred])
    return table


def tested(stores: Sequence[Path]) -> list[results.Record]:
    """How the tests ended on each card with each PyTorch and Triton, for the programs that are here.

    It is the newest run that counts, in whichever store it lies.
    """
    newest = {}
    for run, _ in _records(TESTS[0], stores):
        if (run.scale, run.arm, run.recipe.get("programs")) == ("full", TESTS[1], proved.programs()):
            newest[run.device, run.versions["torch"], run.versions["triton"]] = run
    return list(newest.values())


def _records(experiment: str, stores: Sequence[Path]) -> list[tuple[results.Record, Path]]:
    """The runs of an experiment, the newest last, each with its store."""
    held = [root for root in dict.fromkeys(stores) if experiment in results.experiments(root=root)]
    records = [(record, root) for root in held for record in results.load(experiment, root=root)]
    return sorted(records, key=lambda each: each[0].date)


def adopt() -> list[str]:
    """Rewrite the table by the recorded times, the newest last; says what changed."""
    table, changed = configs.table(), by_record()
    write(changed)
    return [
        f"{program} {width} {kind}: {table[program][width][kind]['shipped']} to {entry['shipped']}"
        for program, widths in changed.items()
        for width, kinds in widths.items()
        for kind, entry in kinds.items()
        if entry["shipped"] != table[program][width][kind]["shipped"]
    ]


def _clock(call: Call) -> float:
    return timing.columns(timing.times([call], "cuda"))["ms"]
