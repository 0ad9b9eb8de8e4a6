"""Every program compiled without a card and held against what is recorded.

For an H100 with its shipped block sizes, in ahead.json: what the machine code does. For each of four chips at
the papers' widths, in chips.csv: the block sizes that fit it, and what they need. ``make aot`` compiles all
of it and compares; ``make aot UPDATE=1`` records it anew for tests and chapters. The tests compile a part.
"""

import argparse
import csv
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any, NamedTuple

import torch

from gkalib.gpu.ahead import Report, build
from gkalib.gpu.cases import OPERATIONS, SAMPLES, Need, Sample
from gkalib.gpu.ready import Compiler, choices, for_a_card
from gkalib.smoothing.fused.cards import SHARED, card_of

BASELINE, CHIPS = (Path(__file__).with_name(name) for name in ("ahead.json", "chips.csv"))
NAMES = "sm_80", "sm_89", "sm_90a", "sm_120"
"""The chips: of an A100, of an RTX 4090, of an H100, of an RTX 5090."""
WIDTHS = (16, 32, 64, 128, 256)
ODD = 80
"""A width that is no power of two, of which a program masks a part of each row."""
LONG, VIT = 1024, 197
"""A length that blocks divide, and the one of a ViT at 224 pixels, which they do not."""
PAPERS = (64, 128)
"""The widths that the papers use."""
SHARING = {
    "softmax_forward", "softmax_backward", "unnormalized_forward", "unnormalized_backward", "rbf_decode",
    "gpa_decode",
}  # fmt: skip
"""Cases whose programs and entries of the table are another case's too."""
OF_LAGS = {"bank_table", "bank_gradient"}
"""Cases that read no heads, whose widths and types are nothing to them."""
MASKLESS = {name for name in SAMPLES if name.endswith("decode") or name.startswith("row_features")} | OF_LAGS

GOALS = {
    ("gka_forward", "smooth_forward"): 5.95,
    ("gka_backward", "gka_backward"): 12.31,
    ("gpa_forward", "smooth_forward"): 7.81,
    ("row_features", "row_operator_forward"): 17.91,
}
"""Instructions per score that a case's program may need, for bfloat16 heads of 64 numbers without a mask."""
AT_VIT = {("gka_forward", "smooth_forward"): 10.24}
"""Likewise at the length of a ViT, for each true pair: 18 % less than with whole blocks at the edges."""


@dataclass(frozen=True)
class Program:
    """A program that a case launches, and what its machine code says."""

    case: str
    width: int
    dtype: str
    mask: str
    length: int
    report: Report

    @property
    def key(self) -> str:
        """What names it in a baseline."""
        return " ".join(map(str, (*self.where, self.report.program)))

    @property
    def where(self) -> tuple[str, int, str, str, int]:
        """The case's name, width, type, mask and length."""
        return self.case, self.width, self.dtype, self.mask, self.length

    @classmethod
    def of(cls, fields: dict[str, Any]) -> "Program":
        """From a line of JSON."""
        names = ("case", "width", "dtype", "mask", "length")
        report = {name: value for name, value in fields.items() if name not in names}
        report["loops"] = tuple(report["loops"])
        return cls(**{name: fields[name] for name in names}, report=Report(**report))

    def line(self) -> str:
        """As a line of JSON."""
        fields = asdict(self)
        return json.dumps(fields | fields.pop("report"), ensure_ascii=False)


def everything() -> list[Sample]:
    """Each entry of the table at least once: all widths in both sizes of element, each mask, two lengths."""
    half, single = torch.bfloat16, torch.float32
    samples = []
    for name in SAMPLES:
        if name in OF_LAGS:
            samples += [Sample(name, 64, half)]
            continue
        if name in SHARING:
            samples += [Sample(name, width, half) for width in PAPERS] + [Sample(name, 64, single)]
        else:
            samples += [Sample(name, width, dtype) for dtype in (half, single) for width in WIDTHS]
            samples += [
                Sample(name, 64, torch.float16),
                Sample(name, 64, half, "all", VIT),
                Sample(name, ODD, half),
            ]
        if name not in MASKLESS:
            samples += [Sample(name, width, half, "band") for width in PAPERS] + [
                Sample(name, 64, single, "band")
            ]
            samples += [Sample(name, 64, half, "given")]
    return samples


def survey(case: Sample) -> list[Program]:
    """Compile what a case launches. A program launched in two ways has a number behind its name."""
    reports = list(dict.fromkeys(build(launch) for launch in case.launches()))
    names = [report.program for report in reports]
    numbered = (
        replace(report, program=f"{report.program} {again + 1}") if again else report
        for report, again in (
            (report, names[:index].count(report.program)) for index, report in enumerate(reports)
        )
    )
    return [Program(*case.where, report) for report in numbered]


def recorded() -> dict[str, Program]:
    """The rows of the baseline by their keys."""
    rows = [Program.of(fields) for fields in json.loads(BASELINE.read_text())]
    return {row.key: row for row in rows}


def record(rows: Sequence[Program]) -> None:
    """Make these rows the baseline, in the order of the cases, without those that are none any more."""
    order = {case.where: index for index, case in enumerate(everything())}
    rows = sorted((row for row in rows if row.where in order), key=lambda row: order[row.where])
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
    baseline = before.report
    size, old = (
        (report.rows, report.columns, report.warps, report.stages),
        (baseline.rows, baseline.columns, baseline.warps, baseline.stages),
    )
    if size != old:
        faults += [f"block sizes {size}, recorded {old}"]
    if report.spills > baseline.spills:
        faults += [f"{report.spills} bytes spilled, recorded {baseline.spills}"]
    if report.registers > baseline.registers + 8:
        faults += [f"{report.registers} registers, recorded {baseline.registers}"]
    if report.local > baseline.local:
        faults += [f"{report.local} accesses to local memory in the hot loop, recorded {baseline.local}"]
    if baseline.hgmma and not report.hgmma:
        faults += ["its products no longer run on a warp group's tensor cores"]
    if report.serialized and not baseline.serialized:
        faults += ["its tensor-core products wait for one another"]
    if baseline.per_score and (report.per_score is None or report.per_score > 1.1 * baseline.per_score):
        faults += [f"{report.per_score} instructions per score, recorded {baseline.per_score}"]
    if sum(report.loops) > 1.1 * sum(baseline.loops):
        faults += [f"loops of {report.loops} instructions, recorded {baseline.loops}"]
    return faults


def per_pair(report: Report, length: int) -> float:
    """Instructions of the loops for each pair of a head of so many tokens without a mask, at edges too."""
    rest, narrow = length % report.columns, report.edge > 0
    last = report.loops[0] * -(-rest // report.edge) if narrow else report.loops[-1] * (rest > 0)
    each = report.loops[narrow] * (length // report.columns) + last
    return 32 * report.warps * -(-length // report.rows) * each / length**2


def missed(row: Program) -> str | None:
    """Why a row misses its goal, if it has one."""
    at_vit = row.length == VIT
    goal = (AT_VIT if at_vit else GOALS).get((row.case, row.report.program))
    if goal is None or row.where[1:-1] != (64, "bfloat16", "all"):
        return None
    spills, score = row.report.spills, row.report.per_score
    score = round(per_pair(row.report, VIT), 2) if at_vit else score
    if spills or score is None or score > goal:
        return f"{spills} bytes spilled, {score} instructions per score; the goal is 0 and {goal}"
    return None


def compiled(cases: Sequence[Sample], processes: int = 2) -> list[Program]:
    """The survey in processes of their own, which import the programs for a card."""
    with for_a_card(processes) as pool:
        return [*chain.from_iterable(pool.map(survey, cases))]


class Fitted(NamedTuple):
    """A program at a width of bfloat16 heads on a chip: the block sizes that fit it, and what they need."""

    chip: str
    operation: str
    width: int
    direction: str
    program: str
    rows: int
    columns: int
    warps: int
    stages: int
    registers: int
    spills: int
    shared: int

    @property
    def key(self) -> tuple:
        """What names it."""
        return self[:5]


def needs() -> list[Need]:
    """Every operation in bfloat16 at the papers' widths."""
    return [Need(name, "bfloat16", width) for name in OPERATIONS for width in PAPERS]


def fitted(chip: str, wanted: Sequence[Need], processes: int = 2) -> list[Fitted]:
    """What `gkalib ready` would choose on a chip without measuring: shipped block sizes, or smaller ones.

    Raises:
        ValueError: if a program fits at no size.
    """
    compiler = Compiler(card_of(chip), processes)
    rows: list[Fitted] = []
    with compiler.pool as pool:
        tried = {
            (need, direction, program): every[:1]
            for need, found in zip(wanted, pool.map(choices, wanted, repeat("long")), strict=True)
            for direction, programs in found.items()
            for program, every in programs.items()
        }
        for (need, _, program), (sizes,) in tried.items():  # all at once, so that no process waits
            compiler.ask(need, program, sizes)
        for (need, direction, program), sizes in tried.items():
            fits, why = compiler.fitting(need, program, sizes)
            if why:
                raise ValueError(f"survey: {chip}: {why}")
            fit = compiler.ask(need, program, fits[0]).result()
            own = fit.registers, fit.spills, fit.shared
            rows.append(Fitted._make((chip, need.operation, need.width, direction, program, *fits[0], *own)))
    return rows


def recorded_fits() -> list[Fitted]:
    """The rows of the table."""
    with CHIPS.open(encoding="utf-8", newline="") as lines:
        _, *rows = csv.reader(lines)
    return [Fitted._make(int(cell) if cell.isdigit() else cell for cell in row) for row in rows]


def record_fits(rows: Sequence[Fitted]) -> None:
    """Make these rows the table, chip by chip."""
    ordered = sorted(rows, key=lambda row: NAMES.index(row.chip))
    with CHIPS.open("w", encoding="utf-8", newline="") as lines:
        csv.writer(lines, lineterminator="\n").writerows([Fitted._fields, *ordered])


def unlike(row: Fitted, before: Fitted | None) -> list[str]:
    """What is other than recorded in the fit of a program: its blocks, or more spills or registers."""
    if before is None:
        return ["it is not in the table"]
    faults = [] if row[5:9] == before[5:9] else [f"block sizes {row[5:9]}, recorded {before[5:9]}"]
    if row.spills > before.spills or row.registers > before.registers + 8:
        faults += [
            f"{row.registers} registers, {row.spills} spilled, recorded {before.registers}, {before.spills}"
        ]
    return faults


def main() -> int:
    """Compile every program for an H100, and what each chip has room for; compare both with the records."""
    parser = argparse.ArgumentParser(prog="python -m gkalib.gpu.survey", description=main.__doc__)
    option = parser.add_argument
    option("only", nargs="*", metavar="NAME", help="cases and chips to compile; all where none is named")
    option("--update", action="store_true", help="record the rows instead of comparing them")
    option("--processes", type=int, default=os.cpu_count() or 1, help="(%(default)s)")
    options = parser.parse_args()
    only, failures = options.only, 0

    def tell(words: str, faults: list[str]) -> None:
        nonlocal failures
        failures += bool(faults)
        print(words, *(f"    {line}" for line in faults), sep="\n", flush=True)

    cases = [case for case in everything() if not only or case.name in only]
    rows, baseline = compiled(cases, options.processes), recorded()
    for row in rows:
        faults = [] if options.update else complaints(row, baseline.get(row.key))
        faults += [miss] if (miss := missed(row)) else []
        tell(
            f"{row.case:<22} {row.width:>3} {row.dtype:<8} {row.mask:<5} {row.length:>4}  {row.report}",
            faults,
        )
    fits, table = [], {row.key: row for row in recorded_fits()}
    for chip in (chip for chip in NAMES if not only or chip in only):
        for row in fitted(chip, needs(), options.processes):
            fits.append(row)
            tell("  ".join(map(str, row)), [] if options.update else unlike(row, table.get(row.key)))
    if options.update:
        record(list((baseline | {row.key: row for row in rows}).values()))
        record_fits(list((table | {row.key: row for row in fits}).values()))
    print(f"{len(rows) + len(fits)} programs compiled, {failures} with complaints")
    return bool(failures) and not options.update


if __name__ == "__main__":
    sys.exit(main())
