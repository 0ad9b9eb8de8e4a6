"""What correctness runs prove: only what was compared to the end and was right, on the programs of today."""

from dataclasses import asdict
from pathlib import Path

import pytest

from gkalib import results
from gkalib.gpu import correctness, proofs
from gkalib.gpu.operations import OPERATIONS
from gkalib.smoothing.fused import configs, proved

CARD, TYPE = "A card", "bfloat16"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path))
    return tmp_path


def run(
    operation: str,
    *,
    wrong: str = "",
    least: bool = False,
    day: int = 1,
    prefix: str = "",
    programs: str = "",
    blocks: str = "",
) -> None:
    """Save a run of an operation on a card: every row right, or each of one quantity wrong."""
    rows = []
    for check in list(correctness.checks(operation, "cuda", [TYPE]))[: 1 if least else None]:
        parts = ("out", "query") if OPERATIONS[operation].gradients else ("out",)
        rows += [{**asdict(check), "what": what, "right": int(what != wrong), "error": 0.1} for what in parts]
    recipe = {
        "operation": operation,
        "types": [TYPE],
        "programs": programs or proved.programs(),
        "blocks": blocks or configs.blocks(),
    }
    cases = {tuple(value for name, value in row.items() if name not in ("what", "right")) for row in rows}
    record = results.Record(
        experiment="correctness", arm=f"{prefix}{operation}-{TYPE}", scale="full", recipe=recipe, seed=0,
        device=CARD, commit="0" * 12, clean=True, date=f"2026-01-{day:02d}T00:00:00+00:00", wall_seconds=1.0,
        versions={"torch": "2", "triton": "3"},
        metrics={"cases": len(cases), "wrong": sum(not row["right"] for row in rows)},
    )  # fmt: skip
    results.save(record, rows=rows)


def found() -> set[tuple[str, str]]:
    """Operations and directions that are proved on the card."""
    every = proofs.by_record()
    assert all((each.device, each.dtype, each.torch, each.triton) == (CARD, TYPE, "2", "3") for each in every)
    assert all((each.programs, each.blocks) == (proved.programs(), configs.blocks()) for each in every)
    return {(each.operation, each.direction) for each in every}


BOTH = {("gka", "forward"), ("gka", "backward")}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, BOTH),
        ({"wrong": "query"}, {("gka", "forward")}),
        ({"wrong": "out"}, set()),
        ({"least": True}, set()),
        ({"programs": "0" * 12}, set()),
        ({"blocks": "0" * 12}, set()),
    ],
    ids=["right", "a wrong gradient", "a wrong output", "cut off", "other programs", "other block sizes"],
)
def test_an_operation_is_proved_as_far_as_its_run_was_right(store: Path, changes: dict, expected: set):
    run("gka", **changes)
    assert found() == expected


def test_the_newest_run_counts(store: Path):
    run("gka", prefix="first-", wrong="out")
    assert found() == set()
    run("gka", day=2)
    assert found() == BOTH


@pytest.mark.parametrize(("wrong", "expected"), [("", BOTH), ("out", set())])
def test_a_later_run_that_was_cut_off_takes_a_proof_away_only_by_an_error(
    store: Path, wrong: str, expected: set
):
    run("gka")
    run("gka", prefix="first-", least=True, wrong=wrong, day=2)
    assert found() == expected


def test_everything_that_bears_on_an_operation_has_to_be_right(store: Path):
    bearing = [name for name, kind in OPERATIONS.items() if kind.proves == "smooth" and kind.ordered]
    assert set(bearing) == {"rbf", "rbf-table", "softmax", "gpa", "kerple"}
    for name in bearing[:-1]:
        run(name)
    assert found() == set()
    run(bearing[-1])
    assert found() == {("smooth", "forward"), ("smooth", "backward")}
    run("softmax", wrong="query", day=2)
    assert found() == {("smooth", "forward")}


def test_a_step_of_decoding_has_no_gradient_to_prove(store: Path):
    run("decode")
    run("decode-gpa")
    assert found() == {("decode", "forward")}


def test_what_stands_in_bears_on_an_operation_once_it_is_shipped(store: Path, monkeypatch):
    run("gka")
    table = configs.table()
    entry = {"shipped": [64, 64, 4, 2], "candidates": [[], [64, 64, 4, 2]]}
    shipped = {**table, "gka_backward_head": {"64": {"16": entry}}}
    monkeypatch.setattr(configs, "table", lambda: shipped)
    run("gka", blocks=configs.blocks())
    assert found() == set()
    run("gka-head", blocks=configs.blocks())
    assert found() == BOTH


def test_the_file_holds_what_the_records_prove():
    """What it holds of programs that have changed since counts for nothing, and may stay."""
    shipped = {proof for proof in proved.read() if proof.programs == proved.programs()}
    assert shipped <= set(proofs.by_record())


def test_proofs_are_written_and_read(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run("gka")
    path = tmp_path / "proved.json"
    proofs.write(proofs.by_record(), path)
    monkeypatch.setenv("GKALIB_PROVED", str(path))
    try:
        assert proved.read() == frozenset(proofs.by_record()) and len(proved.read()) == 2
    finally:
        proved.forget()
