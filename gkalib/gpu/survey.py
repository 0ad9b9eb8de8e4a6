"""Every program compiled without a card: none gets worse, and each of four chips has room for it.

What the machine code does on an H100 with the shipped block sizes is recorded in ahead.json, which ``make
aot`` compares with and chapters read; ``make aot UPDATE=1`` records it anew. On each chip there have to be
block sizes at the papers' widths that fit it and spill nothing. The tests compile a part.
"""

import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import tyro

from gkalib.gpu.ahead import Report, build
from gkalib.gpu.cases import OPERATIONS, SAMPLES, Need, Sample
from gkalib.gpu.ready import Compiler, for_a_card
from gkalib.smoothing.fused.cards import SHARED, card_of

BASELINE = Path(__file__).with_name("ahead.json")
NAMES = "sm_80", "sm_89", "sm_90a", "sm_120"
"""The chips: of an A100, of an RTX 4090, of an H100, of an RTX 5090."""
VIT = 197
"""The tokens of a ViT at 224 pixels, whose last block is not full."""
PAPERS = (64, 128)
"""The widths that the papers use."""
GOALS = {
    ("gka_forward", "smooth_forward"): 5.95,
    ("gka_backward", "gka_backward"): 12.31,
    ("gpa_forward", "smooth_forward"): 7.81,
    ("row_features", "row_operator_forward"): 17.91,
}
"""Instructions per score that a case's program may need, for bfloat16 heads of 64 numbers without a mask."""


class Program(NamedTuple):
    """A program that a case launches, and what its machine code says."""

    sample: Sample
    report: Report

    @property
    def key(self) -> str:
        """What names it in a baseline."""
        return " ".join(map(str, (*self.sample, self.report.program)))

    @classmethod
    def of(cls, fields: dict[str, Any]) -> "Program":
        """From what a line of JSON holds."""
        sample = Sample(*(fields.pop(name) for name in Sample._fields))
        fields["loops"] = tuple(fields["loops"])
        return cls(sample, Report(**fields))

    def line(self) -> str:
        """As a line of JSON."""
        return json.dumps(self.sample._asdict() | asdict(self.report))


def everything() -> list[Sample]:
    """Each case at the papers' widths; at 64 in float32 too, at a ViT's length and under masks with edges."""
    samples = []
    for case, (operation, _) in SAMPLES.items():
        samples += [Sample(case, width) for width in PAPERS]
        samples += [Sample(case, dtype="float32"), Sample(case, length=VIT)]
        of = OPERATIONS[operation]
        if of.one != "token" and len(of.masks) > 1:
            samples += [Sample(case, mask=mask) for mask in ("band", "given")]
    return samples


def survey(sample: Sample) -> list[Program]:
    """Compile what a case launches. A program launched in two ways has a number behind its name."""
    programs: dict[str, Program] = {}
    for report in dict.fromkeys(build(launch) for launch in sample.launches()):
        again = sum(name.split()[0] == report.program for name in programs)
        name = f"{report.program} {again + 1}" if again else report.program
        programs[name] = Program(sample, replace(report, program=name))
    return [*programs.values()]


def recorded() -> dict[str, Program]:
    """The rows of the baseline by their keys."""
    rows = [Program.of(fields) for fields in json.loads(BASELINE.read_text())]
    return {row.key: row for row in rows}


def record(rows: Sequence[Program]) -> None:
    """Make these rows the baseline, in the order of the cases, without those that are none any more."""
    order = {sample: index for index, sample in enumerate(everything())}
    rows = sorted((row for row in rows if row.sample in order), key=lambda row: order[row.sample])
    BASELINE.write_text("[\n" + ",\n".join(row.line() for row in rows) + "\n]\n")


def complaints(row: Program, before: Program | None) -> list[str]:
    """What is worse than before, or never allowed; nothing for a program that holds its own."""
    report = row.report
    faults = []
    if report.shared > SHARED[90]:
        faults += [f"{report.shared} bytes of shared memory: a program has {SHARED[90]}"]
    if report.atomics:
        faults += [f"{report.atomics} atomic additions: sums are to come out alike every time"]
    if before is None:
        return [*faults, "it is not in the baseline"]
    old = before.report
    if report.sizes != old.sizes:
        faults += [f"block sizes {report.sizes}, recorded {old.sizes}"]
    if old.hgmma and not report.hgmma:
        faults += ["its products no longer run on a warp group's tensor cores"]
    if report.serialized and not old.serialized:
        faults += ["its tensor-core products wait for one another"]
    score = math.inf if report.per_score is None else report.per_score
    for what, now, then, most in (
        ("bytes spilled", report.spills, old.spills, old.spills),
        ("registers", report.registers, old.registers, old.registers + 8),
        ("accesses to local memory in the hot loop", report.local, old.local, old.local),
        ("instructions per score", score, old.per_score, 1.1 * (old.per_score or math.inf)),
        ("instructions in its loops", sum(report.loops), sum(old.loops), 1.1 * sum(old.loops)),
    ):
        faults += [f"{now} {what}, recorded {then}"] if now > most else []
    return faults


def missed(row: Program) -> str | None:
    """Why a row misses its goal, if it has one."""
    sample, report = row
    goal = GOALS.get((sample.case, report.program)) if sample == Sample(sample.case) else None
    if goal is None or (not report.spills and report.per_score is not None and report.per_score <= goal):
        return None
    return (
        f"{report.spills} bytes spilled, {report.per_score} instructions per score; the goal is 0 and {goal}"
    )


def compiled(samples: Sequence[Sample], processes: int = 2) -> list[Program]:
    """The survey in processes of their own, which import the programs for a card."""
    with for_a_card(processes) as pool:
        return [*chain.from_iterable(pool.map(survey, samples))]


def needs() -> list[Need]:
    """Every operation in bfloat16 at the papers' widths."""
    return [Need(name, "bfloat16", width) for name in OPERATIONS for width in PAPERS]


def fitted(chip: str, wanted: Sequence[Need], processes: int = 2) -> Iterator[tuple[str, str]]:
    """What `gkalib ready` would choose on a chip without measuring: shipped block sizes, or smaller ones.

    Yields:
        A line for each program, and what is wrong, if none fits or all spill.
    """
    compiler = Compiler(card_of(chip), processes)
    with compiler.pool:
        tried = compiler.ask_all([(need, "long", way) for need in wanted for way in need.directions], most=1)
        for (need, _, direction), programs in tried.items():
            for program, shipped in programs.items():
                fits, why = compiler.fitting(need, program, shipped)
                sizes = (fits or shipped)[0]
                fit = compiler.ask(need, program, sizes).result()
                what = f"{chip:<7} {need.operation:<28} {need.width:>3} {direction:<8} {program:<21}"
                own = f"regs {fit.registers:>3}  spills {fit.spills:>4}  shared {fit.shared:>6}"
                yield f"{what} {sizes}  {own}", why or (f"{fit.spills} bytes spilled" if fit.spills else "")


def main(
    only: tyro.conf.Positional[tuple[str, ...]] = (),
    update: bool = False,
    processes: int = os.cpu_count() or 1,
) -> int:
    """Compile every program for an H100 and compare with the record; find what each chip has room for.

    Args:
        only: cases and chips to compile; all where none is named.
        update: record what an H100 does instead of comparing it.
        processes: how many compile at once.
    """
    told: list[list[str]] = []

    def tell(words: str, *faults: str | None) -> None:
        told.append([fault for fault in faults if fault])
        print(words, *(f"    {fault}" for fault in told[-1]), sep="\n", flush=True)

    samples = [sample for sample in everything() if not only or sample.case in only]
    rows, baseline = compiled(samples, processes), recorded()
    for row in rows:
        case, width, dtype, mask, length = row.sample
        where = f"{case:<22} {width:>3} {dtype:<8} {mask:<5} {length:>4}"
        worse = [] if update else complaints(row, baseline.get(row.key))
        tell(f"{where}  {row.report}", *worse, missed(row))
    for chip in (chip for chip in NAMES if not only or chip in only):
        for words, fault in fitted(chip, needs(), processes):
            tell(words, fault)
    if update:
        record([*(baseline | {row.key: row for row in rows}).values()])
    failures = sum(map(bool, told))
    print(f"{len(told)} programs compiled, {failures} with complaints")
    return bool(failures) and not update


if __name__ == "__main__":
    sys.exit(tyro.cli(main, prog="python -m gkalib.gpu.survey", config=(tyro.conf.FlagCreatePairsOff,)))
