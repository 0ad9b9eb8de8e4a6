"""Times of the block sizes that fused programs may have, as records, and the table that follows from them."""

import time
from collections.abc import Sequence

import torch

from gkalib import results
from gkalib.bench.gpu import timed
from gkalib.bench.queue import Job
from gkalib.smoothing.fused import configs, tune

EXPERIMENT = "tuning"
PAPERS = (64, 128)
"""The widths of a head that the papers use; others are tuned after everything else."""


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
    known = configs.table()
    asked = list(dict.fromkeys(program for program, _, _ in tune.entries(known, programs, widths, bits)))
    for program in asked:
        start = time.perf_counter()
        found = []
        for timing in tune.measure(_clock, known, [program], widths, bits, device=device):
            print(timing, flush=True)
            found.append(timing)
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


def adopt() -> list[str]:
    """Rewrite the table by the recorded times, the newest last; says what changed."""
    known = configs.table()
    changed = known
    for record in sorted(results.load(EXPERIMENT), key=lambda record: record.date):
        changed = tune.choose(changed, tune.timings(results.rows(record)))
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
    found = []
    for program in configs.table():
        for priority, widths, bits in ((40, PAPERS, (16,)), (90, (), ())):
            choices = list(tune.entries(configs.table(), [program], widths, bits))
            if choices:
                found.append(
                    Job(
                        name=f"tune-{program.replace('_', '-')}{'' if widths else '-rest'}",
                        priority=priority,
                        seconds=30.0 * len(choices),
                        call="gkalib.bench.tuning:run",
                        arguments={"programs": [program], "widths": [*widths], "bits": [*bits]},
                        depends=("smoothing/fused",),
                    )
                )
    return found


def _clock(call: tune.Call) -> float:
    return timed([call], "cuda").median
