"""Every program with its shipped block sizes, compiled for an H100 and held against what is recorded.

``make aot`` compiles all of it and compares; ``make aot UPDATE=1`` records it anew in ahead.json, where tests
and chapters read it. The tests compile a part of it. Nothing here needs a card.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from gkalib.gpu.ahead import SHARED_LIMIT, Report, build, launches
from gkalib.gpu.samples import CALLS, Sample

BASELINE = Path(__file__).with_name("ahead.json")
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
OF_LAGS = {"bank_table", "bank_at", "bank_gradient"}
"""Cases that read no heads, whose widths and types are nothing to them."""
MASKLESS = {"row_features", "row_features_backward", "gka_decode", "rbf_decode", "gpa_decode", *OF_LAGS}

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
    for name in CALLS:
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


def quick() -> list[Sample]:
    """What each run of the tests compiles: bfloat16 at the papers' widths, and the rest for GKA."""
    half = torch.bfloat16
    samples = []
    for name in CALLS:
        samples += [Sample(name, 64, half)]
        if name not in MASKLESS:
            samples += [Sample(name, 128, half, "band")]
    for name in ("gka_forward", "gka_backward"):
        samples += [
            Sample(name, 64, half, "all", VIT),
            Sample(name, 64, torch.float32),
            Sample(name, 64, half, "given"),
        ]
        samples += [Sample(name, 256, half), Sample(name, 128, half)]
    return samples


def survey(cases: Sequence[Sample]) -> Iterator[Program]:
    """Compile what each case launches. A program launched in two ways has a number behind its name."""
    for case in cases:
        reports = list(dict.fromkeys(build(launch) for launch in launches(case)))
        names = [report.program for report in reports]
        for index, report in enumerate(reports):
            if again := names[:index].count(report.program):
                report = replace(report, program=f"{report.program} {again + 1}")
            yield Program(*case.where, report)


def recorded() -> dict[str, Program]:
    """The rows of the baseline by their keys."""
    rows = [Program.of(fields) for fields in json.loads(BASELINE.read_text())]
    return {row.key: row for row in rows}


def record(rows: Sequence[Program]) -> None:
    """Make these rows the baseline."""
    BASELINE.write_text("[\n" + ",\n".join(row.line() for row in rows) + "\n]\n")


def complaints(row: Program, before: Program | None) -> list[str]:
    """What is worse than before, or never allowed; nothing for a program that holds its own."""
    report = row.report
    faults = (
        [f"{report.shared} bytes of shared memory: a program has {SHARED_LIMIT}"]
        if report.shared > SHARED_LIMIT
        else []
    )
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
    """The survey in processes of their own, which import the programs for a card, with a fresh cache."""
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"TRITON_CACHE_DIR": cache, "OMP_NUM_THREADS": "1"}
        environment.pop("TRITON_INTERPRET", None)
        command = [sys.executable, "-m", "gkalib.gpu.survey", "--cases"]
        running = []
        for start in range(processes):
            words = [_word(case) for case in cases[start::processes]]
            running.append(
                subprocess.Popen(
                    [*command, *words],
                    env=environment,
                    text=True,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
            )
        outputs = [process.communicate() for process in running]
    for process, (_, error) in zip(running, outputs, strict=True):
        if process.returncode:
            raise RuntimeError(f"the survey stopped: {error}")
    rows = [
        Program.of(json.loads(line))
        for out, _ in outputs
        for line in out.splitlines()
        if line.startswith("{")
    ]
    order = {case.where: index for index, case in enumerate(cases)}
    return sorted(rows, key=lambda row: order[row.where])


def _word(case: Sample) -> str:
    return ":".join(map(str, case.where))


def _case(word: str) -> Sample:
    name, width, dtype, mask, length = word.split(":")
    return Sample(name, int(width), getattr(torch, dtype), mask, int(length))


def main() -> int:
    """Compile every program with its shipped block sizes, print a table, and compare with the baseline."""
    parser = argparse.ArgumentParser(prog="python -m gkalib.gpu.survey", description=main.__doc__)
    option = parser.add_argument
    option("only", nargs="*", metavar="CASE", help="the cases to compile; all where none is named")
    option("--cases", nargs="*", metavar="CASE", help="only print these as JSON: name:width:type:mask:length")
    option("--update", action="store_true", help="record the rows instead of comparing them")
    option("--processes", type=int, default=os.cpu_count() or 1, help="(%(default)s)")
    options = parser.parse_args()
    if options.cases is not None:
        for row in survey([_case(word) for word in options.cases]):
            print(row.line(), flush=True)
        return 0
    cases = [case for case in everything() if not options.only or case.name in options.only]
    rows = compiled(cases, options.processes)
    baseline = recorded()
    failures = 0
    for row in rows:
        faults = [] if options.update else complaints(row, baseline.get(row.key))
        faults += [miss] if (miss := missed(row)) else []
        failures += bool(faults)
        print(f"{row.case:<22} {row.width:>3} {row.dtype:<8} {row.mask:<5} {row.length:>4}  {row.report}")
        for line in faults:
            print(f"    {line}")
    if options.update:
        updated = {case.where for case in cases}
        order = {case.where: index for index, case in enumerate(everything())}
        unchanged = [row for row in baseline.values() if row.where in order and row.where not in updated]
        record(sorted([*unchanged, *rows], key=lambda row: order[row.where]))
    print(f"{len(rows)} programs compiled, {failures} with complaints")
    return bool(failures) and not options.update


if __name__ == "__main__":
    sys.exit(main())
