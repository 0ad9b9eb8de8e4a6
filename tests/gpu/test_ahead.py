"""What the machine code of the fused programs says, compiled here for four chips, against records."""

import json
import os
import random
from dataclasses import replace
from itertools import product

import pytest
import torch
import triton

from gkalib.gpu import ahead, survey
from gkalib.gpu.cases import Sample
from gkalib.gpu.survey import Program, compiled, complaints, everything, fitted, missed, recorded
from gkalib.smoothing.fused import WIDTHS
from gkalib.smoothing.fused.configs import table

DRAWN = 10  # cases a day beside those that have a goal


@pytest.fixture(scope="module")
def baseline() -> dict[str, Program]:
    return recorded()


@pytest.fixture(scope="module")
def day() -> random.Random:
    """What is drawn today: JITTER=2026-01-31 draws that day's again."""
    return random.Random(os.environ["JITTER"])


@pytest.mark.slow
def test_programs_compiled_now_are_no_worse_than_recorded(baseline: dict[str, Program], day: random.Random):
    """Those with a goal, and some of the others."""
    goals = [Sample(case) for case, _ in survey.GOALS]
    samples = goals + day.sample([sample for sample in everything() if sample not in goals], DRAWN)
    rows = compiled(samples)
    assert {row.sample for row in rows} == set(samples)
    told = {row.key: complaints(row, baseline.get(row.key)) for row in rows}
    assert not {key: lines for key, lines in told.items() if lines}
    assert {row.key: missed(row) for row in rows if missed(row)} == {}


@pytest.mark.slow
def test_at_the_papers_widths_programs_fit_each_chip_and_spill_nothing(day: random.Random):
    told = [*fitted(day.choice(survey.NAMES), day.sample(survey.needs(), 2))]
    assert told and not [(line, fault) for line, fault in told if fault]


def test_the_baseline_holds_every_case(baseline: dict[str, Program]):
    assert {row.sample for row in baseline.values()} == set(everything())
    assert [Program.of(json.loads(row.line())) for row in baseline.values()] == [*baseline.values()]


def test_the_goals_are_met_where_they_are_recorded(baseline: dict[str, Program]):
    met = {(row.sample.case, row.report.program) for row in baseline.values() if missed(row) is None}
    assert met >= set(survey.GOALS)
    assert [row.key for row in baseline.values() if missed(row)] == []


def test_sums_come_out_alike_every_time(baseline: dict[str, Program]):
    assert not {row.report.program for row in baseline.values() if row.report.atomics}


def test_a_program_with_a_loop_of_products_has_its_block_sizes_in_the_table(baseline: dict[str, Program]):
    looping = {row.report.program.split()[0] for row in baseline.values() if row.report.loops}
    for program, width, bits in product(looping, WIDTHS, (16, 32)):
        assert table()[f"{program} {width} {bits}"]


def test_products_run_on_the_tensor_cores_of_warp_groups(baseline: dict[str, Program]):
    half = [row.report for row in baseline.values() if row.report.loops and row.sample.dtype != "float32"]
    # One token's heads are 16 rows: too few for those of a warp group, which take 64.
    assert half and {report.program for report in half if not report.hgmma} == {"decode_group"}
    assert all(report.hmma for report in half if not report.hgmma)


def test_no_hot_loop_of_16_bits_waits_for_local_memory(baseline: dict[str, Program]):
    half = [row for row in baseline.values() if row.sample.dtype != "float32"]
    assert half and [row.key for row in half if row.report.local] == []


ROW = Program(
    Sample("gka_forward"),
    ahead.Report(
        "smooth_forward", 128, 64, 4, 2, registers=200, spills=0, shared=33024, hgmma=16, hmma=0,
        serialized=False, atomics=0, local=0, loops=(381, 414), per_score=5.95,
    ),
)  # fmt: skip


def changed(sample: Sample = ROW.sample, **report: object) -> Program:
    return Program(sample, replace(ROW.report, **report))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, []),
        ({"registers": 208, "per_score": 6.2}, []),
        ({"registers": 209}, ["209 registers, recorded 200"]),
        ({"spills": 8}, ["8 bytes spilled"]),
        ({"shared": 232449}, ["232449 bytes of shared memory"]),
        ({"per_score": 7.0}, ["7.0 instructions per score"]),
        ({"per_score": None}, ["inf instructions per score"]),
        ({"loops": (381, 800)}, ["1181 instructions in its loops, recorded 795"]),
        ({"hgmma": 0, "hmma": 64}, ["its products no longer run"]),
        ({"atomics": 2}, ["2 atomic additions"]),
        ({"serialized": True}, ["its tensor-core products wait"]),
        ({"local": 3}, ["3 accesses to local memory"]),
        ({"rows": 64}, ["block sizes (64, 64, 4, 2, 0)"]),
        ({"edge": 16}, ["block sizes (128, 64, 4, 2, 16)"]),
    ],
)
def test_what_is_worse_is_told(change: dict[str, object], told: list[str]):
    actual = complaints(changed(**change), ROW)
    assert len(actual) == len(told)
    assert all(line.startswith(start) for line, start in zip(actual, told, strict=True))


def test_what_is_new_is_told():
    assert complaints(ROW, None) == ["it is not in the baseline"]


def test_a_missed_goal_is_told():
    assert missed(ROW) is None and "6.6 instructions" in missed(changed(per_score=6.6))
    assert missed(changed(ROW.sample._replace(width=128), per_score=9.0)) is None
    assert "8 bytes" in missed(changed(spills=8))


def test_a_loop_is_what_a_branch_jumps_back_over():
    code = [
        (0x00, "MOV R1, R2"),
        (0x10, "HGMMA.64x64x16.F32.BF16 R24, gdesc[UR8], R24"),
        (0x20, "@P0 BRA 0x40"),
        (0x30, "@!P1 BRA 0x10"),
        (0x40, "HMMA.16816.F32 R4, R8, R10, R4"),
        (0x50, "@P0 BRA 0x0"),
        (0x60, "BRA 0x60"),
    ]
    assert [len(loop) for loop in ahead.loops(code)] == [3, 6]
    assert ahead.passed_over(code[:6]) == 1, "the branch at 0x20 passes over 0x30"
    assert ahead.passed_over(code[1:4]) == 0, "0x40 is no part of this loop"


@pytest.mark.skipif(torch.cuda.is_available(), reason="programs are imported for the card here")
def test_programs_of_the_interpreter_are_not_compiled():
    assert triton.knobs.runtime.interpret
    with pytest.raises(ValueError, match="unset TRITON_INTERPRET"):
        Sample("gka_forward").launches()
