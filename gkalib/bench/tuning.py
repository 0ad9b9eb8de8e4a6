"""Times of the block sizes that fused programs may have, as records, and the table that follows from them."""

import time
from collections.abc import Sequence

import torch

from gkalib import results
from gkalib.bench import gpu
from gkalib.bench.job import Job
from gkalib.gpu import tune
from gkalib.smoothing.fused import configs

EXPERIMENT = "tuning"
PAPERS = (64, 128)
"""The widths of a head that the papers use; others are tuned after everything else."""


CALLS = {"smooth_forward": 3, "smooth_backward_key": 3, "smooth_backward_query": 3, "decode_split": 3}
"""How many sample calls ask for an entry of these, about; of others it is one."""


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
    tune.require(device)
    known = _by_record(configs.table())
    asked = list(dict.fromkeys(program for program, _, _ in tune.entries(known, programs, widths, bits)))
    for program in asked:
        start, lost = time.perf_counter(), None
        found = []
        try:
            # A stream that is not the default one, so that short calls can be replayed as a graph: by
            # themselves their launches would take longer than their work.
            with gpu.stream(device):
                for timing in tune.measure(_clock, known, [program], widths, bits, device=device):
                    print(timing, flush=True)
                    found.append(timing)
        except RuntimeError as error:
            lost = error
        if not found:
            continue
        changed = tune.choose(known, found)
        entries = {(timing.width, timing.kind) for timing in found}
        moved = sum(
            changed[program][str(width)][kind]["shipped"] != known[program][str(width)][kind]["shipped"]
            for width, kind in entries
        )
        name = "-".join([program.replace("_", "-"), *(f"d{width}" for width in widths)])
        results.save(
            results.Record(
                experiment=EXPERIMENT,
                arm=name,
                scale="full",
                recipe={"program": program, "table": known[program], "widths": [*widths], "bits": [*bits]},
                seed=0,
                device=torch.cuda.get_device_name(),
                wall_seconds=time.perf_counter() - start,
                metrics={"entries": len(entries), "timings": len(found), "changes": moved},
                **results.provenance("torch", "triton"),
            ),
            rows=tune.rows(found),
        )
        if lost is not None:
            raise lost
        known = changed


def compiled(
    programs: Sequence[str] = (),
    widths: Sequence[int] = (),
    bits: Sequence[int] = (),
    *,
    device: str = "cuda",
) -> int:
    """Compile what ``run`` will start, so that it lies in Triton's cache; says how many programs that are."""
    from gkalib.gpu.ahead import ready

    known = _by_record(configs.table())
    every = tune.launches(known, programs, widths, bits)
    return len({ready(launch) for *_, found in every for launch in found})


def _by_record(known: tune.Table) -> tune.Table:
    """The table as the recorded times would have it, the newest last."""
    if EXPERIMENT not in results.experiments():
        return known
    for record in sorted(results.load(EXPERIMENT), key=lambda record: record.date):
        found = tune.timings(results.rows(record))
        known = tune.choose(known, [one for one in found if _proved(one)])
    return known


def _proved(timing: tune.Timing) -> bool:
    """Whether a program may be shipped: one that stands in for another, only if it was right on a card."""
    if not timing.program.endswith("_specialized") or not timing.config:
        return True
    known = results.load("correctness") if "correctness" in results.experiments() else []
    mine = [
        record for record in known if record.arm.startswith("gka-specialized-") and record.scale == "full"
    ]
    return bool(mine) and all(record.metrics["wrong"] == 0 for record in mine)


def adopt() -> list[str]:
    """Rewrite the table by the recorded times, the newest last; says what changed."""
    known = configs.table()
    changed = _by_record(known)
    tune.write(changed)
    return [
        f"{program} {width} {kind}: {known[program][width][kind]['shipped']} to {entry['shipped']}"
        for program, widths in changed.items()
        for width, kinds in widths.items()
        for kind, entry in kinds.items()
        if entry["shipped"] != known[program][width][kind]["shipped"]
    ]


def jobs() -> list[Job]:
    """For the queue: each program at the papers' widths in 16 bits, and then everything else of it."""
    known, found = configs.table(), []
    for program in known:
        for priority, widths, bits in ((_turn(program), PAPERS, (16,)), (90, (), ())):
            choices = list(tune.entries(known, [program], widths, bits))
            if choices:
                sizes = (len(known[name][str(width)][kind]["candidates"]) for name, width, kind in choices)
                found.append(
                    Job(
                        name=f"{'tune' if widths else 'rest'}-{program.replace('_', '-')}",
                        priority=priority,
                        seconds=8.0 + 0.7 * CALLS.get(program, 1) * sum(sizes),
                        call=f"{__name__}:run",
                        arguments={"programs": [program], "widths": [*widths], "bits": [*bits]},
                        depends=("smoothing/fused",),
                        warm=f"{__name__}:compiled",
                    )
                )
    return found


def _turn(program: str) -> int:
    """GKA's programs come first, and what stands in for one after that one."""
    first = ("gka_forward", "gka_backward", "gka_forward_specialized", "gka_backward_specialized")
    if program in first:
        return 12 + first.index(program)
    return 16 if program.startswith("smooth") else 17


def _clock(calls: Sequence[tune.Call]) -> float:
    return gpu.timed(calls, "cuda").median
